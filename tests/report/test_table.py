"""The terminal's table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_qnnctx.judge.verdict import Outcome, Verdict, shown
from pytest_qnnctx.report.record import TestRecord, gate_json
from pytest_qnnctx.report.table import HEADINGS, table_lines


def record(*verdicts: Verdict, board: str | None = "sim") -> TestRecord:
    artifact = {"file": "net_w8a8_v68.bin", "sha256": "ab" * 32}
    gates = tuple(gate_json(verdict) for verdict in verdicts)
    return TestRecord("test_x.py::test_net", "failed", board, artifact=artifact, gates=gates)


def _words(text: str) -> list[str]:
    return text.split()


def test_a_row_a_gate_with_everything_that_a_verdict_has():
    spill = Verdict("spill_zero", Outcome.FAIL, 2162688, 0, "bytes", "graph g spills")
    load = Verdict("max_load_ms", Outcome.PASS, 12.3456, 120, "ms", "11 loads", emulated=True)
    lines = table_lines([record(spill, load)], 200)
    assert lines[0].text.split() == list(HEADINGS)
    assert lines[1].text == "test_x.py::test_net  net_w8a8_v68.bin sha256 abababababab"
    assert lines[2].text.split() == _words("spill_zero FAIL 2162688 0 bytes sim graph g spills")
    assert lines[3].text.split() == _words("max_load_ms pass 12.35 120 ms sim 11 loads (emulated)")
    assert (lines[2].good, lines[3].good) == (False, True)


def test_what_was_not_measured_is_a_dash():
    verdict = Verdict("npu_only", Outcome.INCONCLUSIVE, None, None, "", "unknown")
    lines = table_lines([record(verdict, board=None)], 200)
    assert lines[2].text.split() == ["npu_only", "INCONCLUSIVE", "-", "-", "-", "-", "unknown"]
    assert lines[2].good is False


def test_nothing_judged_gives_no_table():
    assert table_lines([TestRecord("t", "passed")], 80) == []


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12), st.integers(40, 200))
def test_long_evidence_is_wrapped_and_never_cut(word, width):
    evidence = " ".join(f"{word}{i}" for i in range(40))
    lines = table_lines([record(Verdict("gate", Outcome.PASS, 1, 2, "x", evidence))], width)
    shown = " ".join(line.text for line in lines[2:]).split()
    assert shown[-40:] == evidence.split()


def test_on_a_narrow_terminal_the_evidence_stands_below_its_row():
    verdict = Verdict("spill_zero", Outcome.PASS, 0, 0, "bytes", "no spill")
    lines = table_lines([record(verdict)], 80)
    assert lines[0].text.split() == list(HEADINGS[:-1])
    assert lines[2].text.split() == ["spill_zero", "pass", "0", "0", "bytes", "sim"]
    assert (lines[3].text, lines[3].good) == ("      no spill", True)


def test_numbers():
    assert [shown(v) for v in (None, 3, 0.98765, "v68", 1e-9)] == [
        "-",
        "3",
        "0.9877",
        "v68",
        "1e-09",
    ]


def built_with(*messages: str, sha: str = "ab") -> TestRecord:
    findings = [
        {"kind": "float_fallback_allowed", "subject": "net", "message": m} for m in messages
    ]
    artifact = {
        "file": "net.bin",
        "sha256": sha * 32,
        "provenance": {"findings": findings},
    }
    gate = gate_json(Verdict("no_fp16", Outcome.PASS, 0, 0, "ops", "none"))
    return TestRecord("test_x.py::test_net", "passed", "sim", artifact=artifact, gates=(gate,))


def notes(*records: TestRecord, width: int = 120) -> list[str]:
    return [line.text for line in table_lines(records, width) if line.note]


def test_what_the_build_was_allowed_stands_under_its_gates():
    lines = table_lines([built_with("the quantizer may leave ops in floating point")], 120)
    assert (lines[-1].good, lines[-1].note) == (None, True)
    assert lines[-1].text == (
        "  build: float fallback allowed: the quantizer may leave ops in floating point"
    )


def test_a_note_is_given_once_for_a_binary_of_several_tests():
    first, other = built_with("a"), built_with("b", sha="cd")
    assert len(notes(first, first, other)) == 2


def test_many_notes_are_counted_and_long_ones_wrapped():
    shown = notes(built_with(*[f"note {i}" for i in range(9)]))
    assert len(shown) == 6
    assert "4 more" in shown[-1]
    assert len(notes(built_with("word " * 60), width=80)) > 1


def test_binaries_without_provenance_or_findings_have_no_notes():
    assert notes(built_with()) == []
    assert notes(record(Verdict("g", Outcome.PASS, 1, 2, "x", "fine"))) == []
    bare = built_with()
    artifact = {**(bare.artifact or {}), "provenance": None}
    assert notes(TestRecord("t", "passed", "sim", artifact=artifact, gates=bare.gates)) == []
