from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.gates.metric_gate import TaskMetric
from pytest_qnnctx.judge.measurements import Need, Outputs
from pytest_qnnctx.judge.metric import Score
from pytest_qnnctx.judge.metrics import TopK
from pytest_qnnctx.judge.verdict import Outcome

GATE = TaskMetric()
TOP1 = TopK(1)
LIMITS = ("min", "max", "max_drop", "per_class_max_drop")


def right(labels, classes=4):
    """Outputs whose best class is the given one."""
    return [{"y": np.eye(classes, dtype=np.float32)[label]} for label in labels]


def value(outputs, targets):
    """A metric that reads its score from the outputs themselves: the mean of all values."""
    return float(np.mean([sample["y"].mean() for sample in outputs]))


def values(*numbers):
    return [{"y": np.full(3, number, dtype=np.float64)} for number in numbers]


def judge(seen, device, targets=None, metric=value, **given):
    limits = GATE.limits((metric,), {k: v for k, v in given.items() if k in LIMITS})
    kept = {k: v for k, v in given.items() if k not in LIMITS}
    targets = [0] * len(device) if targets is None else targets
    verdict = GATE.judge(limits, replace(seen, outputs=Outputs(targets, device, **kept)))
    json.dumps([verdict.measured, verdict.limit, dict(verdict.details)], allow_nan=False)
    return verdict


@pytest.mark.parametrize(
    ("score", "given", "outcome"),
    [
        (0.96, {"min": 0.95}, Outcome.PASS),
        (0.95, {"min": 0.95}, Outcome.PASS),
        (0.94, {"min": 0.95}, Outcome.FAIL),
        (3.0, {"max": 2.0}, Outcome.FAIL),
        (2.0, {"max": 2.0}, Outcome.PASS),
        (1.5, {"min": 1, "max": 2}, Outcome.PASS),
        (0.0, {"min": 0}, Outcome.PASS),
        (-0.1, {"min": 0}, Outcome.FAIL),
    ],
)
def test_absolute_limits(score, given, outcome, good):
    verdict = judge(good, values(score), **given)
    assert verdict.outcome is outcome
    assert verdict.measured == pytest.approx(score)


def test_the_label_and_the_limit_shown(good):
    one = judge(good, right([1, 2]), [1, 2], TOP1, min=0.9)
    assert (one.gate, one.limit, one.unit) == ("task_metric(top1)", "min 0.9", "share")
    two = judge(good, values(1.0), min=0.95, max_drop=0.01, reference=values(1.0))
    assert (two.gate, two.limit) == ("task_metric(value)", "min 0.95, max_drop 0.01")


@pytest.mark.parametrize(
    ("reference", "device", "outcome"),
    [
        (0.97, 0.96, Outcome.PASS),
        (0.97, 0.9599, Outcome.FAIL),
        (0.97, 0.99, Outcome.PASS),
    ],
)
def test_drop(reference, device, outcome, good):
    verdict = judge(good, values(device), max_drop=0.01, reference=values(reference))
    assert verdict.outcome is outcome
    assert verdict.details["drop"] == pytest.approx(reference - device)
    assert f"{reference:g}" in verdict.evidence


@pytest.mark.parametrize(("device", "outcome"), [(2.0, Outcome.FAIL), (0.5, Outcome.PASS)])
def test_drop_of_an_error_is_its_growth(device, outcome, good):
    def error(outputs, targets):
        return value(outputs, targets)

    error.larger_is_better = False
    verdict = judge(good, values(device), metric=error, max_drop=0.1, reference=values(1.0))
    assert verdict.outcome is outcome


def test_a_missing_reference_is_inconclusive_for_a_drop(good):
    given = {"max_drop": 0.01, "reference_missing": "the model has a custom op"}
    verdict = judge(good, values(1.0), **given)
    assert (verdict.outcome, verdict.measured) == (Outcome.INCONCLUSIVE, 1.0)
    assert "the model has a custom op" in verdict.evidence


def test_a_missing_reference_does_not_hide_a_fail_nor_hinder_an_absolute_limit(good):
    assert judge(good, values(0.1), min=0.5, max_drop=0.1).outcome is Outcome.FAIL
    assert judge(good, values(0.6), min=0.5).outcome is Outcome.PASS


@pytest.mark.parametrize("reference", [values(math.nan), values(1.0, 1.0)])
def test_a_reference_that_is_no_good(reference, good):
    verdict = judge(good, values(1.0), max_drop=0.1, reference=reference)
    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("given", [{"min": 0.5}, {"max": 0.5}, {"max_drop": 0.5}])
def test_a_score_that_is_no_number_fails(score, given, good):
    def metric(outputs, targets):
        return score if outputs[0]["y"][0] == 1 else 0.5

    verdict = judge(good, values(1), metric=metric, reference=values(0), **given)
    assert verdict.outcome is Outcome.FAIL
    assert str(score) in verdict.evidence
    assert verdict.measured == str(score)


def test_nan_in_an_output_is_named_even_where_the_metric_ignores_it(good):
    device = [*values(1.0), {"y": np.array([1.0, math.nan])}]

    def blind(outputs, targets):
        return 1.0

    passing = judge(good, device, metric=blind, min=0.5)
    failing = judge(good, device, metric=blind, min=2)
    for verdict in (passing, failing):
        assert "y (sample 1)" in verdict.evidence
    assert passing.details["non_finite_outputs"] == {"y": [1]}


def per_class(**scores):
    """Outputs that carry the class scores for ``by_class``."""
    return [{name: np.array(score) for name, score in scores.items()}]


def by_class(outputs, targets):
    scores = {name: float(array) for name, array in outputs[0].items()}
    return Score(float(np.mean(list(scores.values()))), 1, scores)


@pytest.mark.parametrize(
    ("device", "outcome", "said"),
    [
        ({"cat": 0.9, "dog": 0.85}, Outcome.PASS, "worst class dog: 0.05"),
        ({"cat": 1.0, "dog": 0.75}, Outcome.FAIL, "class dog drops 0.15 from FP32 0.9"),
        ({"cat": 1.0}, Outcome.FAIL, "no score of class dog"),
        ({"cat": 1.0, "dog": math.nan}, Outcome.FAIL, "dog"),
        ({"cat": 0.9, "dog": 0.9, "cow": 0.0}, Outcome.PASS, "worst class"),
    ],
)
def test_the_worst_class(device, outcome, said, good):
    reference = per_class(cat=0.9, dog=0.9)
    verdict = judge(
        good, per_class(**device), metric=by_class, per_class_max_drop=0.1, reference=reference
    )
    assert verdict.outcome is outcome
    assert said in verdict.evidence or "score is nan" in verdict.evidence


def test_a_class_lost_behind_a_good_average(good):
    labels = [0] * 98 + [1, 1]
    device = right([0] * 100)
    given = {"max_drop": 0.05, "reference": right(labels)}
    assert judge(good, device, labels, TOP1, **given).outcome is Outcome.PASS
    verdict = judge(good, device, labels, TOP1, per_class_max_drop=0.2, **given)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.details["worst_class"] == 1


def test_classes_are_needed_for_a_class_drop(good):
    verdict = judge(good, values(1.0), per_class_max_drop=0.1, reference=values(1.0))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "per class" in verdict.evidence


def test_a_class_that_fp32_has_no_score_of(good):
    def metric(outputs, targets):
        return Score(1.0, 1, {"cat": 1.0, "dog": math.nan})

    verdict = judge(good, values(1), metric=metric, per_class_max_drop=0.1, reference=values(1))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "dog" in verdict.evidence


def test_a_metric_that_raises_is_named_with_its_line(good):
    def broken(outputs, targets):
        raise KeyError("logits")

    verdict = judge(good, values(1.0), metric=broken, min=0.5)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "'broken' raised KeyError" in verdict.evidence
    assert "test_metric_gate.py:" in verdict.evidence


@pytest.mark.parametrize("result", [None, "0.9", True, Score(1.0, 0)])
def test_what_is_no_score_is_inconclusive(result, good):
    verdict = judge(good, values(1.0), metric=lambda outputs, targets: result, min=0.5)
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_a_metric_cannot_spoil_the_outputs_for_others(good):
    device = values(1.0)

    def greedy(outputs, targets):
        outputs[0]["y"] *= 0
        outputs[0].clear()
        targets.clear()
        return 1.0

    judge(good, device, metric=greedy, min=0.5)
    assert device[0]["y"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("quantized", "lost_in"), [(0.5, "quantizing"), (0.96, "the context binary")]
)
def test_a_fail_says_which_step_lost_most(quantized, lost_in, good):
    given = {"reference": values(0.97), "quantized": values(quantized)}
    verdict = judge(good, values(0.49), min=0.95, **given)
    assert verdict.outcome is Outcome.FAIL
    assert f": lost in {lost_in}" in verdict.evidence
    assert ("bisect" in verdict.evidence) == (lost_in == "the context binary")
    assert verdict.details["lost_in"] == lost_in
    assert verdict.details["quantized_score"] == quantized


def test_without_the_quantized_outputs_the_reason_is_kept(good):
    verdict = judge(good, values(0.5), min=0.95, quantized_missing="no QDQ model")
    assert verdict.details["quantized_missing"] == "no QDQ model"


@pytest.mark.parametrize("device", [[], values(1.0, 1.0)])
def test_an_output_for_each_target(device, good):
    assert judge(good, device, [0], min=0.5).outcome is Outcome.INCONCLUSIVE


def test_no_outputs(good, unbuilt):
    limits = GATE.limits(("top1",), {"min": 0.5})
    why = replace(good, missing={Need.OUTPUTS: "the board refused it"})
    assert "the board refused it" in GATE.judge(limits, why).evidence
    for seen in (good, why, unbuilt()):
        verdict = GATE.judge(limits, seen)
        assert (verdict.outcome, verdict.gate) == (Outcome.INCONCLUSIVE, "task_metric(top1)")


def test_a_name_that_was_not_looked_up(good):
    verdict = judge(good, values(1.0), metric="top1", min=0.5)
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_the_emulator_is_labelled(good):
    assert judge(replace(good, emulated=True), values(1.0), min=0.5).emulated


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"min": True},
        {"min": math.nan},
        {"max": math.inf},
        {"min": "0.9"},
        {"max_drop": -0.1},
        {"per_class_max_drop": -1},
        {"min": 2, "max": 1},
        {"minimum": 0.9},
    ],
)
def test_bad_limits(given):
    with pytest.raises(UsageError):
        GATE.limits(("top1",), given)


@pytest.mark.parametrize("args", [(), ("",), (1,), ("top1", 0.9), (TopK,)])
def test_bad_metrics(args):
    with pytest.raises(UsageError):
        GATE.limits(args, {"min": 0.9})


def test_limits_by_name():
    limits = GATE.limits((), {"metric": "top1", "max_drop": 0})
    assert limits == {
        "metric": "top1",
        "min": None,
        "max": None,
        "max_drop": 0,
        "per_class_max_drop": None,
    }
    assert GATE.needs(limits) == {Need.OUTPUTS}
