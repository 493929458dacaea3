from __future__ import annotations

import math

import pytest

from pytest_qnnctx.judge.gate import Condition
from pytest_qnnctx.judge.gates import BUILT_IN
from pytest_qnnctx.judge.judging import judge_all, passed
from pytest_qnnctx.judge.verdict import Outcome, Verdict


class Own:
    """A gate of somebody else's."""

    name = "own"
    signature = "own"
    help = ""
    always = False

    def __init__(self, answer):
        self.answer = answer

    def limits(self, args, kwargs):
        return {}

    def needs(self, limits):
        return frozenset()

    def judge(self, limits, measurements):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def verdict(outcome=Outcome.PASS, measured=1, evidence="seen"):
    return Verdict("own", outcome, measured, 2, "", evidence)


def judged(answer, good):
    (found,) = judge_all([Condition(Own(answer), {})], good)
    return found


def test_a_verdict_for_each_condition_in_order(good, unbuilt):
    limits = {"ms": 1, "mb": 4, "percentile": 50, "metric": "top1", "min": 1}
    limits |= dict.fromkeys(["max", "max_drop", "per_class_max_drop"])
    conditions = [Condition(gate, limits) for gate in BUILT_IN]
    for seen in (good, unbuilt(), unbuilt(("float_op", "conv"))):
        verdicts = judge_all(conditions, seen)
        assert [v.gate.partition("(")[0] for v in verdicts] == [g.name for g in BUILT_IN]
        assert not any("bug" in v.evidence for v in verdicts)
        assert not passed(verdicts)


def test_nothing_passes_after_a_failed_build(unbuilt):
    limits = {"ms": 1, "mb": 4, "percentile": 50, "metric": "top1", "min": 1}
    limits |= dict.fromkeys(["max", "max_drop", "per_class_max_drop"])
    verdicts = judge_all([Condition(gate, limits) for gate in BUILT_IN], unbuilt())
    assert {v.outcome for v in verdicts} == {Outcome.INCONCLUSIVE}


def test_a_gate_that_raises_is_named(good):
    found = judged(ZeroDivisionError("by zero\nmore"), good)
    assert (found.gate, found.outcome, found.measured) == ("own", Outcome.INCONCLUSIVE, None)
    assert "bug in gate own" in found.evidence
    assert "ZeroDivisionError: by zero" in found.evidence


@pytest.mark.parametrize("answer", [None, True, Outcome.PASS])
def test_a_gate_that_answers_something_else(answer, good):
    assert judged(answer, good).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    "answer", [verdict(measured=None), verdict(measured=math.nan), verdict(evidence=" ")]
)
def test_a_pass_needs_value_and_evidence(answer, good):
    assert judged(answer, good).outcome is Outcome.INCONCLUSIVE


def test_a_sound_verdict_is_untouched(good):
    for answer in (verdict(), verdict(Outcome.FAIL, None), verdict(Outcome.INCONCLUSIVE, None)):
        assert judged(answer, good) is answer


def test_only_passes_pass():
    good, bad, unclear = verdict(), verdict(Outcome.FAIL), verdict(Outcome.INCONCLUSIVE)
    assert passed([good, good])
    for verdicts in ([], [bad], [unclear], [good, bad], [good, unclear]):
        assert not passed(verdicts)
