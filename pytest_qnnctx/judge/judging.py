"""From conditions and measurements to verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pytest_qnnctx.judge.gate import Condition
from pytest_qnnctx.judge.measurements import Measurements
from pytest_qnnctx.judge.verdict import Outcome, Verdict


def judge_all(conditions: Sequence[Condition], measurements: Measurements) -> tuple[Verdict, ...]:
    """A verdict for each condition, in their order.

    A gate that raises, or that answers with something else than a Verdict, gives an inconclusive
    verdict that names its bug; and a pass without a measured value or without evidence is none.
    """
    return tuple(_judge(condition, measurements) for condition in conditions)


def passed(verdicts: Sequence[Verdict]) -> bool:
    """Whether the model may ship: at least one verdict, and every one a pass."""
    return bool(verdicts) and all(verdict.outcome is Outcome.PASS for verdict in verdicts)


def _judge(condition: Condition, measurements: Measurements) -> Verdict:
    try:
        verdict = condition.gate.judge(condition.limits, measurements)
    except Exception as error:
        return _bug(condition, f"raised {type(error).__name__}: {error}")
    if not isinstance(verdict, Verdict):
        return _bug(condition, f"returned {type(verdict).__name__}, not a Verdict")
    if not isinstance(verdict.outcome, Outcome) or not isinstance(verdict.evidence, str):
        return _bug(condition, "returned a Verdict without an Outcome, or without a sentence")
    if verdict.outcome is not Outcome.PASS:
        return verdict
    measured = verdict.measured
    if measured is None or (isinstance(measured, float) and math.isnan(measured)):
        why = f"passed without a measured value: {verdict.evidence}"
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, measured=None, evidence=why)
    if not verdict.evidence.strip():
        why = "passed without evidence"
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, evidence=why)
    return verdict


def _bug(condition: Condition, what: str) -> Verdict:
    name = str(getattr(condition.gate, "name", type(condition.gate).__name__))
    line = what.splitlines()[0] if what.splitlines() else what
    evidence = f"bug in gate {name} ({type(condition.gate).__module__}): {line}"
    return Verdict(name, Outcome.INCONCLUSIVE, None, None, "", evidence)
