"""The section at the end of pytest's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_qnnctx.report.table import table_lines
from pytest_qnnctx.tally import EXIT_INFRASTRUCTURE, EXIT_MISSING

if TYPE_CHECKING:
    import pytest

    from pytest_qnnctx.config import Settings
    from pytest_qnnctx.report.record import TestRecord
    from pytest_qnnctx.tally import Tally


def write_summary(
    terminal: pytest.TerminalReporter, tally: Tally, settings: Settings, *, missing: bool
) -> None:
    """Table, counts, and what to make of errors and (``missing``) of tests without a result."""
    records = tally.records
    quiet = terminal.config.get_verbosity() < 0
    judged = [r for r in records if r.gates and not (quiet and _all_passed(r))]
    gates = [gate for record in records for gate in record.gates]
    if gates or tally.infrastructure or missing:
        terminal.write_sep("=", "qnnctx: gates")
    for line in table_lines(judged, terminal._tw.fullwidth):
        if line.note:
            terminal.write_line(line.text, yellow=True)
        elif line.good is None:
            terminal.write_line(line.text, bold=True)
        else:
            terminal.write_line(line.text, green=line.good, red=not line.good)
    passed = sum(gate["verdict"] == "pass" for gate in gates)
    tests = sum(bool(record.gates) for record in records)
    if gates:
        terminal.write_line(f"{passed} of {len(gates)} gates passed, in {_counted(tests, 'test')}")
    errors = [r for r in tally.records if r.problem and r.problem.family == "infrastructure"]
    if errors:
        terminal.write_line(
            f"{_counted(len(errors), 'test')} ended in an infrastructure error, which says nothing "
            f"about the model "
            f"(exit status {EXIT_INFRASTRUCTURE} where nothing else failed):",
            yellow=True,
        )
        for record in errors:
            assert record.problem is not None
            first = record.problem.message.splitlines()[0]
            terminal.write_line(f"  {record.nodeid}: {first}", yellow=True)
    if missing:
        terminal.write_line(
            f"without a result (exit status {EXIT_MISSING}): "
            f"{_counted(len(tally.missing), 'collected test')}: " + ", ".join(tally.missing[:5]),
            red=True,
        )
    if settings.json is not None:
        terminal.write_line(f"JSON report: {settings.json}")


def _all_passed(record: TestRecord) -> bool:
    return all(gate["verdict"] == "pass" for gate in record.gates)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
