"""Real context binaries, compiled once a session by the vendor's compiler."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Context binaries by the name of their plan in compile_contexts.py; never written to."""
    if importlib.util.find_spec("onnxruntime_qnn") is None:
        pytest.skip("needs onnxruntime-qnn, which compiles the context binaries")
    directory = tmp_path_factory.mktemp("contexts")
    done = subprocess.run(
        [sys.executable, str(HERE / "compile_contexts.py"), str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path.name.removesuffix("_ctx_qnn.bin"): path for path in directory.glob("*_qnn.bin")}
    assert set(found) == {"v68", "v73", "vtcm4", "two"}
    return found


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read binaries as on a machine that has no libQnnSystem."""
    monkeypatch.setenv("QNNCTX_QNN_SYSTEM_LIB", "none")
