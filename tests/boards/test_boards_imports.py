from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"yaml", "jsonschema", "filelock", "paramiko", "adbutils", "numpy", "onnx", "pytest"}


@pytest.mark.parametrize(
    "module",
    ["board", "transport", "selectors", "sim", "inventory", "session", "lease", "local", "staging"],
)
def test_importing_it_costs_nothing(module):
    code = (
        f"import sys, pytest_qnnctx.boards.{module}; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert HEAVY & set(done.stdout.split()) == set()
