"""Gates on times: loading the context, and one inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.gates.answer import Answer, not_taken, on_emulator
from pytest_qnnctx.judge.gates.arguments import bound, number
from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.statistics import Decision, Ruling, looks, quantile_test
from pytest_qnnctx.judge.verdict import Verdict

Limits = Mapping[str, Any]

_REFUSED = "emulated time refused: --qnnctx-require-hardware wants it from a board"


class MaxLoadMs:
    """The median time to load the context in a fresh process is within a limit.

    The first load is cold (file cache, clocks) and is kept apart.
    """

    name = "max_load_ms"
    signature = "max_load_ms(ms)"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """``ms``, above 0."""

        def form(ms: float) -> None: ...

        given = bound(self.signature, form, args, kwargs)
        return {"ms": number(self.signature, "ms", given["ms"], above=0)}

    def needs(self, limits: Limits) -> frozenset[Need]:
        """Load times."""
        return frozenset({Need.LOADS})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """The sign test of :mod:`pytest_qnnctx.judge.statistics`."""
        answer = Answer(self.name, limits["ms"], "ms", on_emulator(measurements))
        loads = measurements.loads
        if loads is None:
            return answer.unknown(not_taken(measurements, Need.LOADS, "load times"))
        details: dict[str, Any] = {"cold_ms": loads.cold_ms, "samples_ms": loads.samples_ms}
        if answer.emulated and measurements.require_hardware:
            return answer.unknown(_REFUSED, **details)
        decision = quantile_test(loads.samples_ms, limits["ms"])
        return _verdict(answer, decision, "loads", _recorded(loads.recorded_at), details)


class MaxLatencyMs:
    """A percentile of the time of one inference is within a limit."""

    name = "max_latency_ms"
    signature = "max_latency_ms(ms, percentile=50)"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """``ms`` above 0, ``percentile`` between 0 and 100 (both excluded)."""

        def form(ms: float, percentile: float = 50) -> None: ...

        given = bound(self.signature, form, args, kwargs)
        percentile = number(self.signature, "percentile", given["percentile"], above=0)
        if percentile >= 100:
            raise UsageError(
                "no number of samples shows that every inference is in time "
                f"(percentile={percentile:g})",
                next_step="ask for a percentile below 100, such as 99",
            )
        ms = number(self.signature, "ms", given["ms"], above=0)
        return {"ms": ms, "percentile": percentile}

    def needs(self, limits: Limits) -> frozenset[Need]:
        """Inference times."""
        return frozenset({Need.LATENCY})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """The order-statistic test of :mod:`pytest_qnnctx.judge.statistics`."""
        answer = Answer(self.name, limits["ms"], "ms", on_emulator(measurements))
        latency = measurements.latency
        if latency is None:
            return answer.unknown(not_taken(measurements, Need.LATENCY, "inference times"))
        details: dict[str, Any] = {"inputs": latency.inputs, "samples_ms": latency.samples_ms}
        if answer.emulated and measurements.require_hardware:
            return answer.unknown(_REFUSED, **details)
        decision = quantile_test(latency.samples_ms, limits["ms"], limits["percentile"])
        fed = "" if latency.inputs == "dataset" else f", fed {latency.inputs}"
        fed += _recorded(latency.recorded_at)
        return _verdict(answer, decision, "inferences", fed, details)


def loads_wanted(limit: float, samples: Sequence[float]) -> int:
    """How many load times (ms) to have in all, the cold one not counted, to judge ``limit``.

    11 to begin with; 31 where 11 do not decide; ``len(samples)`` where more would not help.
    """
    return quantile_test(samples, limit).wanted


def inferences_wanted(limits: Limits) -> int:
    """How many inference times decide a ``max_latency_ms`` of these limits in one look.

    31 for the median, 93 for p95: an inference is cheap, so there is no smaller first look.
    """
    return looks(limits["percentile"])[1]


def _recorded(date: str) -> str:
    """What is said of times that were not taken now."""
    return f", recorded {date[:16].replace('T', ' ')}" if date else ""


def _verdict(
    answer: Answer, decision: Decision, noun: str, suffix: str, details: Mapping[str, Any]
) -> Verdict:
    """The verdict of a decision; every sample goes into its details."""
    facts = {
        **details,
        "count": decision.count,
        "over": decision.over,
        "percentile": decision.percentile,
        "p_value": decision.p_value,
    }
    if decision.estimate is None:
        wanted = f", {decision.wanted} wanted" if decision.ruling is Ruling.MORE_NEEDED else ""
        return answer.unknown(f"{noun}: {decision.reason}{wanted}", **facts)
    which = "median" if decision.percentile == 50 else f"p{decision.percentile:g}"
    evidence = f"{which} {decision.estimate:.4g} ms of {decision.count} {noun}: {decision.reason}"
    if decision.ruling is Ruling.MORE_NEEDED:
        evidence += f"; {decision.wanted} wanted"
    elif decision.p_value is not None:
        evidence += f" (p = {decision.p_value:.2g})"
    evidence += (", emulated" if answer.emulated else "") + suffix
    if decision.ruling is Ruling.PASS:
        return answer.passes(decision.estimate, evidence, **facts)
    if decision.ruling is Ruling.FAIL:
        return answer.fails(decision.estimate, evidence, **facts)
    return answer.unknown(evidence, decision.estimate, **facts)
