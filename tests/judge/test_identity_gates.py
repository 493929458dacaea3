from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.gates.identity_gates import HtpArch, Runtime, Soc
from pytest_qnnctx.judge.measurements import Need
from pytest_qnnctx.judge.verdict import Outcome

GATES = [HtpArch(), Soc(), Runtime()]
EACH = pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)


def with_binary(seen, **changes):
    return replace(seen, binary=replace(seen.binary, **changes))


def with_board(seen, **changes):
    return replace(seen, board=replace(seen.board, **changes))


@EACH
def test_no_arguments(gate):
    assert gate.needs({}) == {Need.BINARY, Need.BOARD}
    assert gate.limits((), {}) == {}
    with pytest.raises(UsageError):
        gate.limits((1,), {})


@EACH
def test_agreement_passes(gate, good):
    verdict = gate.judge({}, good)
    assert (verdict.gate, verdict.outcome, verdict.emulated) == (gate.name, Outcome.PASS, False)
    assert verdict.measured is not None


@EACH
def test_the_emulator_is_labelled(gate, good):
    assert gate.judge({}, with_board(good, emulated=True)).emulated


@EACH
def test_without_a_binary(gate, good):
    seen = replace(good, binary=None, missing={Need.BINARY: "it is damaged"})
    verdict = gate.judge({}, seen)
    assert (verdict.outcome, verdict.measured) == (Outcome.INCONCLUSIVE, None)
    assert "it is damaged" in verdict.evidence


@EACH
def test_without_a_board(gate, good):
    verdict = gate.judge({}, replace(good, board=None))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "board" in verdict.evidence


@EACH
def test_after_a_failed_build(gate, unbuilt):
    verdict = gate.judge({}, unbuilt())
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.evidence == "no usable binary was built"


@EACH
@pytest.mark.parametrize("field", ["htp_arch", "soc", "qnn_version"])
def test_what_the_binary_or_the_board_does_not_say(gate, field, good):
    own = {"htp_arch": "htp_arch", "soc": "soc", "runtime": "qnn_version"}[gate.name]
    expected = Outcome.INCONCLUSIVE if own == field else Outcome.PASS
    assert gate.judge({}, with_binary(good, **{field: None})).outcome is expected
    assert gate.judge({}, with_board(good, **{field: None})).outcome is expected


def test_the_readers_reason_is_repeated(good):
    seen = with_binary(good, htp_arch=None, unknown={"htp_arch": "no option string"})
    assert "no option string" in HtpArch().judge({}, seen).evidence


def test_another_architecture_than_the_targets_fails_even_without_a_board(good):
    seen = replace(with_binary(good, htp_arch="v73"), board=None)
    verdict = HtpArch().judge({}, seen)
    assert (verdict.outcome, verdict.measured, verdict.limit) == (Outcome.FAIL, "v73", "v68")


def test_another_architecture_than_the_boards_fails(good):
    verdict = HtpArch().judge({}, with_board(good, htp_arch="v73"))
    assert verdict.outcome is Outcome.FAIL
    assert "v73" in verdict.evidence


def test_two_names_of_one_part_are_equal(good):
    verdict = Soc().judge({}, with_board(with_binary(good, soc="QCM6490"), soc="qcs6490"))
    assert verdict.outcome is Outcome.PASS
    assert "one part" in verdict.evidence


@pytest.mark.parametrize("change", [with_binary, with_board])
def test_another_soc_of_the_same_architecture_fails(change, good):
    verdict = Soc().judge({}, change(good, soc="SM8350"))
    assert verdict.outcome is Outcome.FAIL
    assert "SM8350" in verdict.evidence


def test_a_binary_too_old_to_name_its_soc_is_to_be_rebuilt(good):
    assert "rebuild" in Soc().judge({}, with_binary(good, soc=None)).evidence


@pytest.mark.parametrize(
    ("built", "runtime", "outcome"),
    [
        ("2.47.0.260601114230", "2.51.0.260929181845", Outcome.PASS),
        ("2.51.0.260929181845", "2.47.0.260601114230", Outcome.FAIL),
        ("2.9.0.1", "2.51.0.1", Outcome.PASS),
        ("2.51.3.2", "2.51.0.1", Outcome.PASS),
        ("3.0.0.1", "2.51.0.1", Outcome.FAIL),
        ("v2.51.0.1", "2.51", Outcome.PASS),
        ("", "2.51.0.1", Outcome.INCONCLUSIVE),
        ("2.51.0.1", "unknown", Outcome.INCONCLUSIVE),
        ("2", "2.51.0.1", Outcome.INCONCLUSIVE),
        ("2.5x", "2.51.0.1", Outcome.INCONCLUSIVE),
    ],
)
def test_a_runtime_reads_what_is_not_newer(built, runtime, outcome, good):
    seen = with_board(with_binary(good, qnn_version=built), qnn_version=runtime)
    assert Runtime().judge({}, seen).outcome is outcome


@pytest.mark.parametrize("runtime", ["2.51.0.1", "2.40.0.1", "?"])
def test_a_verdict_on_versions_gives_its_rule_and_where_that_is_from(runtime, good):
    details = Runtime().judge({}, with_board(good, qnn_version=runtime)).details
    assert "older QNN versions" in details["rule"]
    assert "2.47 loads in 2.51" in details["source"]


@pytest.mark.parametrize(
    ("built", "noted"), [("2.51.0.1", False), ("v2.51.0.1", False), ("2.51.1.7", True)]
)
def test_another_build_of_one_minor_version_is_noted(built, noted, good):
    seen = with_board(with_binary(good, qnn_version=built), qnn_version="2.51.0.1")
    verdict = Runtime().judge({}, seen)
    assert verdict.outcome is Outcome.PASS
    assert ("note" in verdict.details) is noted
