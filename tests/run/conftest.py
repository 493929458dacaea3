"""What the tests of run share: compiled nets, and a session on the emulator."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_qnnctx.boards.local import open_local
from pytest_qnnctx.boards.session import BoardSession, open_session
from pytest_qnnctx.boards.sim import sim_board

COMPILER = Path(__file__).parent.parent / "netrun" / "compile_nets.py"


@pytest.fixture(scope="session")
def nets_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See compile_nets.py for what is in it."""
    if importlib.util.find_spec("onnxruntime_qnn") is None:
        pytest.skip("needs onnxruntime-qnn, which compiles and runs the nets")
    directory = tmp_path_factory.mktemp("nets")
    done = subprocess.run(
        [sys.executable, str(COMPILER), str(directory)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[BoardSession]:
    """A session on the emulator whose files stay in the test's directory."""
    board = replace(sim_board(), staging_dir=str(tmp_path / "staging"))
    with open_session(board, open_local, lock_dir=tmp_path / "locks", lease_timeout_s=10) as opened:
        yield opened
