from __future__ import annotations

import math

import pytest

from pytest_qnnctx.judge.blame import blame


def test_quantizing_lost_most():
    found = blame(0.97, 0.60, 0.59)
    assert found.worst == "quantizing"
    assert found.losses["quantizing"] > 0.36
    assert found.sentence == (
        "FP32 0.97 -> quantized on CPU 0.6 -> binary 0.59: lost in quantizing"
    )


def test_the_binary_lost_most():
    assert blame(0.97, 0.96, 0.50).worst == "the context binary"


def test_an_error_that_grows_is_a_loss():
    found = blame(1.0, 1.1, 5.0, larger_is_better=False)
    assert found.worst == "the context binary"
    assert found.losses["the context binary"] > 3.8


def test_nobody_lost():
    found = blame(0.5, 0.5, 0.5)
    assert found.worst == ""
    assert "no step lost anything" in found.sentence


def test_without_the_fp32_score_the_binary_alone_can_be_blamed():
    assert blame(None, 0.9, 0.5).worst == "the context binary"


def test_without_the_quantized_score_there_is_nothing_to_say():
    assert blame(0.9, None, 0.5) is None


def test_nan_of_the_binary_lost_everything():
    assert blame(0.9, 0.1, math.nan).worst == "the context binary"


@pytest.mark.parametrize("scores", [(math.nan, 0.9, 0.9), (0.9, math.nan, 0.9), (math.nan,) * 3])
def test_nan_before_the_binary_is_no_loss_of_a_step(scores):
    assert blame(*scores) is None
