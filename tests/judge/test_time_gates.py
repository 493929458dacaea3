from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.gates.time_gates import (
    MaxLatencyMs,
    MaxLoadMs,
    inferences_wanted,
    loads_wanted,
)
from pytest_qnnctx.judge.measurements import LatencySamples, LoadSamples, Need
from pytest_qnnctx.judge.verdict import Outcome


def loaded(seen, samples, cold=500.0, **changes):
    return replace(seen, loads=LoadSamples(cold, tuple(samples)), **changes)


def ran(seen, samples, inputs="dataset", **changes):
    return replace(seen, latency=LatencySamples(tuple(samples), inputs), **changes)


@pytest.mark.parametrize(
    ("samples", "outcome"),
    [
        ([80.0] * 9 + [130.0] * 2, Outcome.PASS),
        ([80.0] * 2 + [130.0] * 9, Outcome.FAIL),
        ([80.0] * 6 + [130.0] * 5, Outcome.INCONCLUSIVE),
        ([80.0] * 21 + [130.0] * 10, Outcome.PASS),
        ([80.0] * 16 + [130.0] * 15, Outcome.INCONCLUSIVE),
        ([80.0] * 5, Outcome.INCONCLUSIVE),
        ([], Outcome.INCONCLUSIVE),
        ([80.0] * 10 + [math.nan], Outcome.INCONCLUSIVE),
    ],
)
def test_max_load(samples, outcome, good):
    verdict = MaxLoadMs().judge({"ms": 120}, loaded(good, samples))
    assert (verdict.outcome, verdict.limit, verdict.unit) == (outcome, 120, "ms")
    json.dumps(verdict.details, allow_nan=False)


def test_the_cold_load_is_recorded_and_not_judged(good):
    verdict = MaxLoadMs().judge({"ms": 120}, loaded(good, [80.0] * 11, cold=9000.0))
    assert verdict.outcome is Outcome.PASS
    assert verdict.details["cold_ms"] == 9000.0
    assert verdict.details["samples_ms"] == [80.0] * 11
    assert verdict.evidence == "median 80 ms of 11 loads: 0 of 11 over the limit (p = 0.00049)"


def test_too_close_to_the_limit(good):
    verdict = MaxLoadMs().judge({"ms": 120}, loaded(good, [80.0] * 16 + [130.0] * 15))
    assert "too close to the limit" in verdict.evidence
    assert verdict.measured == 80.0


def test_an_undecided_first_look_says_how_many_are_wanted(good):
    verdict = MaxLoadMs().judge({"ms": 120}, loaded(good, [80.0] * 6 + [130.0] * 5))
    assert "31 wanted" in verdict.evidence


@pytest.mark.parametrize("witness", ["measurements", "board"])
def test_emulated_times_are_labelled_and_can_be_refused(witness, good):
    seen = loaded(good, [80.0] * 11, emulated=witness == "measurements")
    seen = replace(seen, board=replace(seen.board, emulated=witness == "board"))
    verdict = MaxLoadMs().judge({"ms": 120}, seen)
    assert (verdict.outcome, verdict.emulated) == (Outcome.PASS, True)
    assert "emulated" in verdict.evidence
    refused = MaxLoadMs().judge({"ms": 120}, replace(seen, require_hardware=True))
    assert (refused.outcome, refused.measured) == (Outcome.INCONCLUSIVE, None)
    assert "emulated time refused" in refused.evidence


def test_hardware_is_not_refused(good):
    seen = loaded(good, [80.0] * 11, require_hardware=True)
    assert MaxLoadMs().judge({"ms": 120}, seen).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("gate", "limits"),
    [(MaxLoadMs(), {"ms": 120}), (MaxLatencyMs(), {"ms": 120, "percentile": 50})],
    ids=["load", "latency"],
)
def test_unmeasured_times(gate, limits, good, unbuilt):
    (need,) = gate.needs(limits)
    why = replace(good, missing={need: "the runtime refused it"})
    assert "the runtime refused it" in gate.judge(limits, why).evidence
    for seen in (good, why, unbuilt()):
        assert gate.judge(limits, seen).outcome is Outcome.INCONCLUSIVE


def test_max_latency_by_percentile(good):
    seen = ran(good, [10.0] * 85 + [30.0] * 15)
    median = MaxLatencyMs().judge({"ms": 20, "percentile": 50}, seen)
    p95 = MaxLatencyMs().judge({"ms": 20, "percentile": 95}, seen)
    assert (median.outcome, median.measured) == (Outcome.PASS, 10.0)
    assert (p95.outcome, p95.measured) == (Outcome.FAIL, 30.0)
    assert "p95" in p95.evidence


def test_p95_wants_59(good):
    limits = {"ms": 20, "percentile": 95}
    assert MaxLatencyMs().judge(limits, ran(good, [1.0] * 58)).outcome is Outcome.INCONCLUSIVE
    assert MaxLatencyMs().judge(limits, ran(good, [1.0] * 59)).outcome is Outcome.PASS


def test_what_was_fed_is_told(good):
    limits = {"ms": 20, "percentile": 50}
    assert "fed zeros" in MaxLatencyMs().judge(limits, ran(good, [1.0] * 11, "zeros")).evidence
    assert "fed" not in MaxLatencyMs().judge(limits, ran(good, [1.0] * 11)).evidence


def test_limits():
    assert MaxLoadMs().limits((120,), {}) == {"ms": 120}
    assert MaxLatencyMs().limits((5,), {}) == {"ms": 5, "percentile": 50}
    assert MaxLatencyMs().limits((), {"ms": 5.5, "percentile": 99}) == {"ms": 5.5, "percentile": 99}


@pytest.mark.parametrize("ms", [0, -1, math.nan, math.inf, 10**400, True, "120", None])
def test_bad_limits(ms):
    for gate in (MaxLoadMs(), MaxLatencyMs()):
        with pytest.raises(UsageError, match="ms must be"):
            gate.limits((ms,), {})


@pytest.mark.parametrize("percentile", [0, -5, 100, 101, math.nan, True, "95"])
def test_bad_percentiles(percentile):
    with pytest.raises(UsageError, match="percentile"):
        MaxLatencyMs().limits((5,), {"percentile": percentile})


def test_how_many_to_take():
    assert loads_wanted(120, []) == 11
    assert loads_wanted(120, [80.0] * 11) == 11
    assert loads_wanted(120, [80.0] * 6 + [130.0] * 5) == 31
    assert loads_wanted(120, [80.0] * 16 + [130.0] * 15) == 31
    assert loads_wanted(120, [math.nan] * 11) == 11
    assert inferences_wanted({"ms": 5, "percentile": 50}) == 31
    assert inferences_wanted({"ms": 5, "percentile": 95}) == 93


def test_needs():
    assert MaxLoadMs().needs({}) == {Need.LOADS}
    assert MaxLatencyMs().needs({}) == {Need.LATENCY}
