from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_qnnctx.judge.gates import BUILT_IN

HEAVY = ("numpy", "onnx", "onnxruntime", "onnxruntime_qnn", "pytest")


@pytest.mark.parametrize("module", ["gates", "judging", "metrics", "metric_lookup", "reference"])
def test_imports_are_light(module):
    code = (
        f"import sys, pytest_qnnctx.judge.{module}\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_gates_have_what_markers_show():
    names = [gate.name for gate in BUILT_IN]
    assert len(set(names)) == len(names)
    for gate in BUILT_IN:
        assert gate.signature.partition("(")[0] == gate.name
        assert gate.help
    assert [gate.name for gate in BUILT_IN if gate.always] == [
        "htp_arch",
        "soc",
        "runtime",
        "options_applied",
        "outputs_sane",
    ]


def test_a_listed_gate_says_what_its_rule_says():
    for gate in BUILT_IN:
        assert (gate.rule.name, gate.rule.signature) == (gate.name, gate.signature)


def test_listing_the_gates_imports_no_rule():
    code = (
        "import sys\nfrom pytest_qnnctx.judge.gates import BUILT_IN\n"
        "print(sorted(n for n in sys.modules if n.startswith('pytest_qnnctx.judge')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['pytest_qnnctx.judge', 'pytest_qnnctx.judge.gates']"
