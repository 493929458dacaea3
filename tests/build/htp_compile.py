"""Compile an ONNX for QCS6490 / v68 with the real compiler, in a child process."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_qnnctx.model import Target
from pytest_qnnctx.process import run_child

V68 = Target("QCS6490", "v68", 93, 2, has_float=False)
V73 = Target("SM8550", "v73", 43, 8, has_float=True)

needs_compiler = pytest.mark.skipif(
    find_spec("onnxruntime_qnn") is None, reason="onnxruntime-qnn is not installed"
)


def compile_for_v68(model: Path, workdir: Path) -> str:
    """ "" where every node compiled for the NPU, else what the compiler said."""
    context = workdir / "compiled_ctx.onnx"
    ask = workdir / "compile.json"
    options = {"soc_model": "93", "htp_arch": "68"}
    ask.write_text(json.dumps({"model": str(model), "context": str(context), "options": options}))
    result = run_child(
        [sys.executable, "-P", "-m", "pytest_qnnctx.build.ort_compile", str(ask)],
        time_limit_s=120,
    )
    binaries = list(workdir.glob("compiled_ctx*.bin"))
    if result.returncode == 0 and len(binaries) == 1:
        return ""
    return f"{result.ending}: {result.stderr[-2000:]}"
