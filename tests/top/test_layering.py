"""Data goes one way: a package may import those to its left, and nothing to its right."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import pytest_qnnctx

ROOT = Path(pytest_qnnctx.__file__).parent

#: Left to right. Modules in one tuple may import each other.
LAYERS = (
    (
        "errors",
        "parts",
        "process",
        "model",
        "samples",
        "config",
        "shell_assignments",
        "qualcomm_env",
    ),
    ("hosts",),
    ("build",),
    ("binary",),
    ("boards",),
    ("run",),
    ("judge",),
    ("report",),
    (
        "registry",
        "builtin",
        "hookspecs",
        "dataset",
        "toolchain_choice",
        "admission",
        "workbench",
        "observe",
        "acceptance",
    ),
    ("heading", "doctor_report", "doctor", "cli_common", "cli_pin", "cli_build", "cli"),
    ("markers", "fixtures", "outcomes", "tally", "summary", "account", "plugin"),
)
#: Copied to boards on its own, so it imports nothing of the rest.
APART = "netrun"
KNOWS_PYTEST = {"markers", "fixtures", "outcomes", "tally", "summary", "account", "plugin"}


def _imports(path: Path) -> set[str]:
    """The modules that a file imports anywhere, type checking included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _top(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def _ours(modules: set[str]) -> set[str]:
    names = {module.split(".")[1] for module in modules if module.startswith("pytest_qnnctx.")}
    return names - {"__version__"}


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def test_every_module_has_a_layer():
    known = {name for layer in LAYERS for name in layer} | {APART}
    assert {_top(path) for path in FILES} == known


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_left(path):
    rank = {name: index for index, layer in enumerate(LAYERS) for name in layer}
    top = _top(path)
    used = _ours(_imports(path))
    if top == APART:
        assert used <= {APART, "binary"}
        return
    right = {name for name in used - {APART} if rank[name] > rank[top]}
    assert not right, f"{path.name} imports {right}, which is to the right of {top}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pytest_is_known_to_the_top_floor_alone(path):
    if _top(path) not in KNOWS_PYTEST:
        imported = {module.split(".")[0] for module in _imports(path)}
        assert not imported & {"pytest", "_pytest", "xdist"}


def test_no_module_is_a_smell():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in FILES
        if (lines := len(path.read_text().splitlines())) > 400
    }
    assert not long


def test_importing_the_plugin_imports_nothing_heavy():
    import subprocess

    heavy = "numpy onnx onnxruntime onnxruntime_qnn paramiko adbutils yaml jsonschema filelock"
    code = (
        "import sys, pytest_qnnctx.plugin, pytest_qnnctx.markers, pytest_qnnctx.judge.gates\n"
        f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
