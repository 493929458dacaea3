"""The point of the OCR example, held to: recognition spills on a QCS6490 for a true reason."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

OCR = Path(__file__).parent.parent.parent / "conftest_examples" / "ocr"

TEST = """
import sys

import pytest

sys.path.insert(0, {ocr!r})
from per_tensor import quantize_per_tensor

from pytest_qnnctx import Model


@pytest.fixture
def qnn_model(tmp_path):
    return Model(quantize_per_tensor(320, tmp_path), name="per_tensor_320")


@pytest.mark.spill_zero
@pytest.mark.max_vtcm_mb(2)
@pytest.mark.no_fp16
@pytest.mark.npu_only
def test_recognition(acceptance):
    pass
"""


@pytest.mark.skipif(
    find_spec("rapidocr_onnxruntime") is None, reason="rapidocr-onnxruntime is not installed"
)
def test_recognition_spills(pytester):
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_ocr=TEST.format(ocr=str(OCR)))
    result = pytester.runpytest_inprocess("--board=sim", "--qnnctx-json=report.json")
    assert result.ret == 1
    (test,) = json.loads((pytester.path / "report.json").read_text())["tests"]
    gates = {gate["gate"]: gate for gate in test["gates"]}
    assert (gates["spill_zero"]["verdict"], gates["spill_zero"]["unit"]) == ("fail", "bytes")
    assert gates["spill_zero"]["measured"] == 2162688
    others = {name: gate["verdict"] for name, gate in gates.items() if name != "spill_zero"}
    assert set(others.values()) == {"pass"}
