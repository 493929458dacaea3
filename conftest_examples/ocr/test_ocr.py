"""May PP-OCRv4 ship on a QCS6490? Run with ``pytest --board sim``."""

from functools import partial

import pytest
from lines import (
    NOT_INSTALLED,
    RECOGNITION,
    calibration_lines,
    character_accuracy,
    held_out_lines,
    installed,
    model_path,
)
from pages import DETECTION, PAGE_SIZE, calibration_pages, held_out_pages, line_f1

pytestmark = [
    pytest.mark.skipif(not installed(), reason=NOT_INSTALLED),
    pytest.mark.no_fp16,
    pytest.mark.npu_only,
    pytest.mark.spill_zero,
    pytest.mark.max_vtcm_mb(2),
]


def recognition(width):
    """A parameter of a test: the width of a line, and recognition compiled for it."""
    marker = pytest.mark.qnn_model(
        model_path(RECOGNITION),
        name=f"recognition_{width}",
        input_shapes={"x": (1, 3, 48, width)},
        calibration=partial(calibration_lines, width),
    )
    return pytest.param(width, marks=marker)


@pytest.mark.task_metric(character_accuracy, min=0.9, max_drop=0.1)
@pytest.mark.parametrize("width", [recognition(160), recognition(320)])
def test_recognition(acceptance, width):
    """Reads lines it has not seen; ``width`` is how long a line may be."""
    acceptance.evaluate(held_out_lines(width))


@pytest.mark.qnn_model(
    model_path(DETECTION),
    name="detection",
    input_shapes={"x": (1, 3, PAGE_SIZE, PAGE_SIZE)},
    calibration=calibration_pages,
)
@pytest.mark.task_metric(line_f1, min=0.9, max_drop=0.1)
def test_detection(acceptance):
    """Finds the lines of pages that it has not seen."""
    acceptance.evaluate(held_out_pages())
