from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.metric import Score
from pytest_qnnctx.judge.metrics import BUILT_IN, TopK, as_metric, as_score

TOP1, TOP5 = BUILT_IN


def rows(*values):
    return [{"y": np.asarray(value, dtype=np.float32)} for value in values]


def test_names():
    assert [metric.name for metric in BUILT_IN] == ["top1", "top5"]


def test_top1_overall_and_by_class():
    outputs = rows([0, 5, 1], [9, 5, 1], [0, 5, 6], [0, 1, 2])
    score = TOP1(outputs, [1, 0, 1, 2])
    assert score == Score(0.75, 4, {0: 1.0, 1: 0.5, 2: 1.0})
    assert list(score.per_class) == [0, 1, 2]


def test_top5_counts_the_five_best():
    row = [9, 8, 7, 6, 5, 4, 3]
    assert TOP5(rows(row, row, row), [0, 4, 5]).value == pytest.approx(2 / 3)


@pytest.mark.parametrize("metric", BUILT_IN, ids=["top1", "top5"])
def test_a_constant_output_is_not_lucky(metric):
    assert metric(rows([1.0] * 10), [0]).value == 0.0


def test_ties_count_against_the_sample():
    assert TOP1(rows([5, 5, 1]), [0]).value == 0.0
    assert TopK(2)(rows([5, 5, 1]), [0]).value == 1.0
    assert TopK(2)(rows([5, 5, 5]), [0]).value == 0.0


def test_nan_makes_the_score_nan():
    score = TOP1(rows([0, 5, 1], [0, math.nan, 1]), [1, 2])
    assert math.isnan(score.value)
    assert score.per_class[1] == 1.0
    assert math.isnan(score.per_class[2])


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1, 3, 1, 1)])
def test_shapes_of_one_row(shape):
    assert TOP1([{"y": np.reshape([0.0, 2.0, 1.0], shape)}], [1]).value == 1.0


@pytest.mark.parametrize("shape", [(2, 3), (6, 1, 2), (2, 2)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(UsageError, match="shape"):
        TOP1([{"y": np.zeros(shape)}], [1])


@pytest.mark.parametrize(
    "target",
    [1, np.int64(1), np.array(1), np.array([1]), 1.0, [0, 1, 0], np.array([[0.0, 1.0, 0.0]])],
)
def test_forms_of_a_target(target):
    assert TOP1(rows([0, 5, 1]), [target]).value == 1.0


@pytest.mark.parametrize(
    "target",
    [3, -1, 1.5, "1", None, True, math.nan, [0, 1], [0, 1, 1], [0, 2, 0], [1, [2]], [0.2, 0.8, 0]],
)
def test_what_is_no_target(target):
    with pytest.raises(UsageError, match="target 0"):
        TOP1(rows([0, 5, 1]), [target])


def test_several_outputs_need_a_name():
    outputs = [{"box": np.zeros((4, 4)), "cls": np.array([0.0, 1.0])}]
    with pytest.raises(UsageError, match="box, cls"):
        TOP1(outputs, [1])
    assert TopK(1, output="cls")(outputs, [1]).value == 1.0
    with pytest.raises(UsageError, match="'other'"):
        TopK(1, output="other")(outputs, [1])


def test_a_metric_that_is_always_right_is_refused():
    with pytest.raises(UsageError, match="always right"):
        TOP5(rows([1, 2, 3]), [0])
    with pytest.raises(UsageError, match="always right"):
        TOP1(rows([1]), [0])


@pytest.mark.parametrize("targets", [[], [1, 1]])
def test_a_target_for_each_sample(targets):
    with pytest.raises(UsageError):
        TOP1(rows([0, 5, 1]), targets)


def test_no_samples():
    with pytest.raises(UsageError):
        TOP1([], [])


def test_a_function_becomes_a_metric():
    def error(outputs, targets):
        assert isinstance(outputs, list)
        assert isinstance(targets, list)
        return np.float32(0.5)

    error.unit = "mm"
    error.larger_is_better = False
    metric = as_metric(error)
    assert (metric.name, metric.unit, metric.larger_is_better) == ("error", "mm", False)
    score = metric(tuple(rows([1], [2])), (0, 0))
    assert (score, type(score.value)) == (Score(0.5, 2), float)


def test_a_metric_stays_itself():
    assert as_metric(TOP1) is TOP1


def test_names_of_partials_and_lambdas():
    def inner(outputs, targets, k):
        return k

    assert as_metric(functools.partial(inner, k=1.0)).name == "inner"
    first = as_metric(lambda o, t: 1.0)
    second = as_metric(lambda o, t: 0.0)
    assert first.name != second.name


@pytest.mark.parametrize("metric", [1, None, TopK])
def test_no_metric(metric):
    with pytest.raises(UsageError):
        as_metric(metric)


@pytest.mark.parametrize("result", [1, 1.0, np.float64(1), np.array(1.0), np.array([1.0])[0]])
def test_scores(result):
    assert as_score(result, 7, "m") == Score(1.0, 7)


@pytest.mark.parametrize("result", [True, np.bool_(True), "1", None, [1.0, 2.0], {"map": 1}, b"1"])
def test_no_scores(result):
    with pytest.raises(UsageError, match="'m' returned"):
        as_score(result, 7, "m")
