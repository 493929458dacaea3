"""Recognition quantized by the first recipe one finds: both tests fail. The README says why."""

import pytest
from lines import (
    NOT_INSTALLED,
    RECOGNITION,
    character_accuracy,
    held_out_lines,
    installed,
    model_path,
)
from per_tensor import quantize_per_tensor

from pytest_qnnctx import Model

pytestmark = [
    pytest.mark.skipif(not installed(), reason=NOT_INSTALLED),
    pytest.mark.no_fp16,
    pytest.mark.npu_only,
    pytest.mark.spill_zero,
    pytest.mark.max_vtcm_mb(2),
]


@pytest.fixture(scope="module")
def quantized(width, tmp_path_factory):
    """A QDQ model, made in code when a test asks for it."""
    return quantize_per_tensor(width, tmp_path_factory.mktemp("per_tensor"))


@pytest.fixture
def qnn_model(width, quantized):
    """Stands in for the marker qnn_model, whose file would have to exist beforehand."""
    return Model(quantized, name=f"per_tensor_{width}", reference=model_path(RECOGNITION))


@pytest.mark.task_metric(character_accuracy, min=0.9, max_drop=0.1)
@pytest.mark.parametrize("width", [160, 320], scope="module")
def test_one_scale_for_a_whole_weight(acceptance, width):
    """It spills where the lines are long, and it cannot read."""
    acceptance.evaluate(held_out_lines(width))
