from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.gates.binary_gates import (
    MaxBinaryMb,
    MaxVtcmMb,
    SpillZero,
    compiled_vtcm,
)
from pytest_qnnctx.judge.verdict import Outcome

MIB = 2**20


def compiled(seen, *, blob, option, spill):
    graph = replace(seen.binary.graphs[0], vtcm_bytes=blob, spill_fill_bytes=spill)
    binary = replace(seen.binary, graphs=(graph,), compiled_vtcm_bytes=option)
    return replace(seen, binary=binary)


@pytest.mark.parametrize(
    ("blob", "option", "spill", "outcome"),
    [
        (4 * MIB, 2 * MIB, 2162688, Outcome.FAIL),
        (MIB, MIB, 2293760, Outcome.FAIL),
        (2 * MIB, 2 * MIB, 2162688, Outcome.FAIL),
        (4 * MIB, 4 * MIB, 0, Outcome.FAIL),
        (8 * MIB, 8 * MIB, 0, Outcome.FAIL),
        (2 * MIB, 2 * MIB, 0, Outcome.PASS),
        (4 * MIB, 2 * MIB, 0, Outcome.PASS),
        (4 * MIB, None, 0, Outcome.FAIL),
        (2 * MIB, None, 0, Outcome.PASS),
        (None, None, 0, Outcome.INCONCLUSIVE),
        (None, 2 * MIB, 0, Outcome.PASS),
        (0, 0, 0, Outcome.INCONCLUSIVE),
        (2 * MIB, 2 * MIB, None, Outcome.INCONCLUSIVE),
        (None, None, 4096, Outcome.FAIL),
    ],
)
def test_spill_counts_only_in_the_vtcm_that_the_part_has(blob, option, spill, outcome, good):
    verdict = SpillZero().judge({}, compiled(good, blob=blob, option=option, spill=spill))
    assert verdict.outcome is outcome
    assert (verdict.limit, verdict.unit) == (0, "bytes")
    if outcome is not Outcome.INCONCLUSIVE:
        assert verdict.measured == spill


def test_spill_zero_in_too_much_vtcm_says_what_to_do(good):
    verdict = SpillZero().judge({}, compiled(good, blob=4 * MIB, option=4 * MIB, spill=0))
    assert "4 MiB" in verdict.evidence
    assert "QCS6490 has 2 MiB" in verdict.evidence
    assert "vtcm_mb=2" in verdict.evidence


def test_disagreeing_sources_are_noted(good):
    verdict = SpillZero().judge({}, compiled(good, blob=4 * MIB, option=2 * MIB, spill=0))
    assert "4194304" in verdict.details["note"]


def test_the_parts_vtcm_must_be_known(good):
    seen = replace(good, target=replace(good.target, soc="SM0000", vtcm_mb=None))
    verdict = SpillZero().judge({}, seen)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "SM0000" in verdict.evidence


def test_spill_is_summed_over_graphs_and_the_guilty_are_named(good, graph):
    graphs = (graph, replace(graph, name="head", spill_fill_bytes=4096))
    seen = replace(good, binary=replace(good.binary, graphs=graphs))
    verdict = SpillZero().judge({}, seen)
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, 4096)
    assert "head" in verdict.evidence


def test_one_silent_graph_makes_the_sum_unknown(good, graph):
    graphs = (graph, replace(graph, name="head", spill_fill_bytes=None))
    binary = replace(
        good.binary, graphs=graphs, unknown={"graphs[1].spill_fill_bytes": "blob too short"}
    )
    verdict = SpillZero().judge({}, replace(good, binary=binary))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "blob too short" in verdict.evidence


def test_a_known_spill_fails_beside_a_silent_graph(good, graph):
    graphs = (
        replace(graph, spill_fill_bytes=8),
        replace(graph, name="head", spill_fill_bytes=None),
    )
    seen = replace(good, binary=replace(good.binary, graphs=graphs))
    assert SpillZero().judge({}, seen).outcome is Outcome.FAIL


@pytest.mark.parametrize("gate", [SpillZero(), MaxVtcmMb()], ids=lambda gate: gate.name)
def test_nothing_to_read(gate, good, unbuilt):
    limits = {"mb": 2}
    bare = replace(good, binary=replace(good.binary, graphs=(), compiled_vtcm_bytes=None))
    for seen in (replace(good, binary=None), unbuilt(), bare):
        verdict = gate.judge(limits, seen)
        assert (verdict.outcome, verdict.measured) == (Outcome.INCONCLUSIVE, None)


def test_the_most_demanding_graph_speaks_where_the_option_string_is_missing(binary, graph):
    graphs = (graph, replace(graph, vtcm_bytes=4 * MIB))
    silent = replace(binary, graphs=graphs, compiled_vtcm_bytes=None)
    assert compiled_vtcm(silent) == (4 * MIB, "")
    graphs = (graph, replace(graph, vtcm_bytes=None))
    assert compiled_vtcm(replace(silent, graphs=graphs)) == (None, "")


@pytest.mark.parametrize(
    ("mb", "outcome"), [(2, Outcome.PASS), (1.999, Outcome.FAIL), (4, Outcome.PASS)]
)
def test_max_vtcm(mb, outcome, good):
    verdict = MaxVtcmMb().judge({"mb": mb}, good)
    assert (verdict.outcome, verdict.measured, verdict.limit) == (outcome, 2.0, mb)
    assert "2097152 bytes" in verdict.evidence


@pytest.mark.parametrize(("mb", "outcome"), [(3, Outcome.PASS), (2.9, Outcome.FAIL)])
def test_max_binary(mb, outcome, good):
    verdict = MaxBinaryMb().judge({"mb": mb}, good)
    assert (verdict.outcome, verdict.measured, verdict.unit) == (outcome, 3.0, "MiB")


def test_max_binary_one_byte_over(good):
    size = 3 * MIB + 1
    artifact = replace(good.artifact, size_bytes=size)
    seen = replace(good, artifact=artifact, binary=replace(good.binary, size_bytes=size))
    assert MaxBinaryMb().judge({"mb": 3}, seen).outcome is Outcome.FAIL


def test_a_size_that_is_not_clear(good, unbuilt):
    differing = replace(good, artifact=replace(good.artifact, size_bytes=1))
    empty = replace(good, artifact=None, binary=replace(good.binary, size_bytes=0))
    for seen in (differing, empty, unbuilt()):
        assert MaxBinaryMb().judge({"mb": 3}, seen).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("gate", [MaxBinaryMb(), MaxVtcmMb()], ids=lambda gate: gate.name)
def test_limits_in_mb(gate):
    assert gate.limits((2,), {}) == {"mb": 2}
    assert gate.limits((), {"mb": 1.5}) == {"mb": 1.5}
    for args in [(), (1, 2), (0,), (-1,), (float("nan"),), (float("inf"),), (True,), ("2",)]:
        with pytest.raises(UsageError, match=r"mb|argument"):
            gate.limits(args, {})
    with pytest.raises(UsageError, match="argument"):
        gate.limits((1,), {"size": 2})


def test_spill_zero_takes_no_arguments():
    assert SpillZero().limits((), {}) == {}
    with pytest.raises(UsageError):
        SpillZero().limits((), {"mb": 1})
