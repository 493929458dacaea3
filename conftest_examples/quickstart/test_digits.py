"""May the digit classifier ship? Run with ``pytest --board sim``."""

import numpy as np
import pytest
from digits_data import dataset

pytestmark = pytest.mark.qnn_model("digits.onnx", encodings="digits.encodings")


@pytest.mark.no_fp16
@pytest.mark.npu_only
@pytest.mark.encodings_applied
@pytest.mark.spill_zero
@pytest.mark.max_vtcm_mb(2)
@pytest.mark.max_binary_mb(1)
@pytest.mark.task_metric("top1", min=0.95, max_drop=0.01, per_class_max_drop=0.05)
def test_digits(acceptance):
    """Every condition above, judged on images that were never trained or calibrated on."""
    acceptance.evaluate(dataset())


def test_one_image(board, context_binary):
    """Drive the board by hand: give inputs, get outputs by name."""
    inputs, digit = dataset()[0]
    outputs = board.run(context_binary, inputs)
    assert np.argmax(outputs["logits"]) == digit


def test_binary_is_pinned_to_its_bytes(context_binary):
    """No board needed: the artefact and what is recorded of its making."""
    assert context_binary.provenance.quantization == "w8a8"
    assert context_binary.provenance.sha256 == context_binary.sha256
