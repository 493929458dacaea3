"""Holding a binary against what was asked of the compiler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_qnnctx.admission import is_identity_gate
from pytest_qnnctx.judge.gates import BUILT_IN
from pytest_qnnctx.judge.gates.options_gate import OptionsApplied
from pytest_qnnctx.judge.verdict import Outcome
from pytest_qnnctx.model import Target

MIB = 2**20
ASKED = {
    "htp_arch": "v68",
    "soc_model": 93,
    "vtcm_mb": 2,
    "optimization_level": 3,
    "hvx_threads": 4,
}
UNBOUND = {"optimization_level": 0, "vtcm_bytes": 4 * MIB, "hvx_threads": 0}


def holding(seen, asked, /, *, target=None, unknown=None, soc="QCS6490", arch="v68", **graph):
    """Measurements of a binary for which ``asked`` is recorded, its graph as ``graph`` says."""
    values = {"optimization_level": 3, "vtcm_bytes": 2 * MIB, "hvx_threads": 4, **graph}
    binary = replace(
        seen.binary,
        graphs=(replace(seen.binary.graphs[0], **values),),
        unknown=unknown or {},
        soc=soc,
        htp_arch=arch,
    )
    provenance = None if asked is None else replace(seen.artifact.provenance, asked=asked)
    artifact = replace(seen.artifact, provenance=provenance)
    return replace(seen, artifact=artifact, binary=binary, target=target or seen.target)


def judge(seen):
    return OptionsApplied().judge({}, seen)


def test_a_binary_with_all_that_was_asked_passes(good):
    verdict = judge(holding(good, ASKED))
    assert verdict.outcome is Outcome.PASS
    assert (verdict.measured, verdict.limit) == (0, 0)
    for key in ASKED:
        assert key in verdict.evidence
    assert verdict.details["found"]["vtcm_mb"] == {"net": 2}


@pytest.mark.parametrize(
    ("change", "key", "asked", "found"),
    [
        ({"optimization_level": 2}, "optimization_level", "3", "2"),
        ({"vtcm_bytes": 4 * MIB}, "vtcm_mb", "2", "4"),
        ({"vtcm_bytes": 3 * MIB // 2}, "vtcm_mb", "2", "1.5"),
        ({"hvx_threads": 0}, "hvx_threads", "4", "0"),
        ({"soc": "SM7325"}, "soc_model", "93", "35"),
        ({"arch": "v73"}, "htp_arch", "v68", "v73"),
    ],
)
def test_one_option_that_differs_is_named_with_both_values(change, key, asked, found, good):
    verdict = judge(holding(good, ASKED, **change))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.measured == 1
    assert f"{key}" in verdict.evidence
    assert f"asked {asked}, found {found}" in verdict.evidence
    assert f"ignored {key}" in verdict.evidence
    assert "graph_names" not in verdict.evidence


def test_all_graph_options_at_their_defaults_means_that_graph_names_does_not_match(good):
    verdict = judge(holding(good, ASKED, **UNBOUND))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.measured == 3
    for told in ("asked 3, found 0", "asked 2, found 4", "asked 4, found 0", "graph_names"):
        assert told in verdict.evidence
    assert "called 'net'" in verdict.evidence


def test_values_that_are_the_defaults_by_chance_still_show_the_block_unbound(good):
    asked = {"vtcm_mb": 4, "optimization_level": 3}
    verdict = judge(holding(good, asked, **UNBOUND))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.measured == 1
    assert "graph_names" in verdict.evidence


def test_one_graph_of_two_is_enough(good):
    seen = holding(good, ASKED)
    other = replace(seen.binary.graphs[0], name="second", **UNBOUND)
    binary = replace(seen.binary, graphs=(*seen.binary.graphs, other))
    verdict = judge(replace(seen, binary=binary))
    assert verdict.outcome is Outcome.FAIL
    assert "called 'second'" in verdict.evidence
    assert verdict.details["found"]["optimization_level"] == {"net": 3, "second": 0}


def test_zero_hvx_threads_is_what_was_asked_where_it_was_asked(good):
    assert judge(holding(good, {"hvx_threads": 0}, hvx_threads=0)).outcome is Outcome.PASS
    assert judge(holding(good, {"hvx_threads": 0}, hvx_threads=4)).outcome is Outcome.FAIL


def test_only_what_was_asked_counts(good):
    seen = holding(good, {"optimization_level": 3, "hvx_threads": None}, hvx_threads=0)
    assert judge(seen).outcome is Outcome.PASS


def test_all_of_the_vtcm_is_the_parts(good):
    assert judge(holding(good, {"vtcm_mb": 0})).outcome is Outcome.PASS
    assert judge(holding(good, {"vtcm_mb": 0}, vtcm_bytes=4 * MIB)).outcome is Outcome.FAIL
    unknown = Target("QCS1", "v68")
    assert judge(holding(good, {"vtcm_mb": 0}, target=unknown)).outcome is Outcome.INCONCLUSIVE


def test_vtcm_of_a_graph_that_does_not_say_is_the_files(good):
    assert judge(holding(good, {"vtcm_mb": 2}, vtcm_bytes=None)).outcome is Outcome.PASS
    seen = holding(good, {"vtcm_mb": 2}, vtcm_bytes=None)
    seen = replace(seen, binary=replace(seen.binary, compiled_vtcm_bytes=4 * MIB))
    assert judge(seen).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("key", "change", "field"),
    [
        ("optimization_level", {"optimization_level": None}, "graphs[0].optimization_level"),
        ("hvx_threads", {"hvx_threads": None}, "graphs[0].hvx_threads"),
        ("soc_model", {"soc": None}, "soc"),
        ("htp_arch", {"arch": None}, "htp_arch"),
    ],
)
def test_what_cannot_be_read_back_is_inconclusive_with_the_reason(key, change, field, good):
    verdict = judge(holding(good, ASKED, unknown={field: "the blob is short"}, **change))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert key in verdict.evidence
    assert "the blob is short" in verdict.evidence


def test_a_difference_is_told_even_where_another_option_is_unknown(good):
    verdict = judge(holding(good, ASKED, hvx_threads=None, optimization_level=1))
    assert verdict.outcome is Outcome.FAIL


def test_an_option_that_no_binary_tells_is_inconclusive(good):
    verdict = judge(holding(good, {"dlbc": 1}))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "dlbc" in verdict.evidence


def test_a_soc_of_unknown_number_is_inconclusive_unless_it_is_the_targets(good):
    asked = {"soc_model": 123}
    assert judge(holding(good, asked, soc="QCS1")).outcome is Outcome.INCONCLUSIVE
    target = Target("qcs1", "v68", 123)
    assert judge(holding(good, asked, soc="QCS1", target=target)).outcome is Outcome.PASS


# A binary for which nothing is recorded


@pytest.mark.parametrize("asked", [None, {}, {"vtcm_mb": None}])
def test_without_a_record_the_defaults_on_another_part_are_a_failure(asked, good):
    verdict = judge(holding(good, asked, **UNBOUND))
    assert verdict.outcome is Outcome.FAIL
    assert "did not bind" in verdict.evidence
    assert "'net'" in verdict.evidence
    assert "QCS6490 has 2 MiB" in verdict.evidence


@pytest.mark.parametrize("asked", [None, {}])
def test_without_a_record_other_options_pass_and_are_told(asked, good):
    verdict = judge(holding(good, asked, hvx_threads=0))
    assert verdict.outcome is Outcome.PASS
    for told in ("not recorded", "optimization level 3", "2 MiB", "HVX"):
        assert told in verdict.evidence


@pytest.mark.parametrize(
    ("vtcm_mb", "outcome"),
    [(2, Outcome.FAIL), (8, Outcome.FAIL), (4, Outcome.PASS), (None, Outcome.INCONCLUSIVE)],
)
def test_the_defaults_are_held_against_the_part(vtcm_mb, outcome, good):
    target = Target("QCS6490", "v68", 93, vtcm_mb, False)
    assert judge(holding(good, None, target=target, **UNBOUND)).outcome is outcome


@pytest.mark.parametrize("change", [{"optimization_level": 1}, {"hvx_threads": 2}])
def test_one_value_that_is_no_default_shows_the_block_bound(change, good):
    assert judge(holding(good, None, **{**UNBOUND, **change})).outcome is Outcome.PASS


def test_without_a_record_a_binary_that_does_not_say_is_inconclusive(good):
    seen = holding(
        good, None, optimization_level=None, unknown={"graphs[0].optimization_level": "V1"}
    )
    verdict = judge(seen)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "V1" in verdict.evidence
    bare = replace(seen.binary, graphs=(), unknown={"graphs": "no library"})
    assert "no library" in judge(replace(seen, binary=bare)).evidence


# Its place among the others


def test_what_was_not_built_or_read_is_inconclusive(good, unbuilt):
    assert judge(unbuilt(("float_op", "conv"))).outcome is Outcome.INCONCLUSIVE
    assert judge(replace(good, binary=None)).outcome is Outcome.INCONCLUSIVE


def test_it_is_always_on_and_does_not_keep_a_binary_off_the_board():
    gates = {gate.name: gate for gate in BUILT_IN}
    assert gates["options_applied"].always
    keeps_off = [name for name, gate in gates.items() if is_identity_gate(gate)]
    assert keeps_off == ["htp_arch", "soc", "runtime"]
