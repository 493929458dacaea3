"""The section at the end of pytest's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_qnnctx.report.table import table_lines
from pytest_qnnctx.tally import EXIT_INFRASTRUCTURE, EXIT_MISSING

if TYPE_CHECKING:
    import pytest

    from pytest_qnnctx.config import Settings
    from pytest_qnnctx.tally import Tally


def write_summary(
    terminal: pytest.TerminalReporter, tally: Tally, settings: Settings, *, missing: bool
) -> None:
    """Table, counts, and what to make of errors and (``missing``) of tests without a result."""
    terminal.write_sep("=", "qnnctx: gates")
    for line in table_lines(tally.records, terminal._tw.fullwidth):
        if line.good is None:
            terminal.write_line(line.text, bold=True)
        else:
            terminal.write_line(line.text, green=line.good, red=not line.good)
    errors = [r for r in tally.records if r.problem and r.problem.family == "infrastructure"]
    if errors:
        terminal.write_line(
            f"{len(errors)} ended in an infrastructure error, which says nothing about the model "
            f"(exit status {EXIT_INFRASTRUCTURE} where nothing else failed):",
            yellow=True,
        )
        for record in errors:
            assert record.problem is not None
            first = record.problem.message.splitlines()[0]
            terminal.write_line(f"  {record.nodeid}: {first}", yellow=True)
    if missing:
        terminal.write_line(
            f"{len(tally.missing)} collected tests have no result (exit status {EXIT_MISSING}): "
            + ", ".join(tally.missing[:5]),
            red=True,
        )
    if settings.json is not None:
        terminal.write_line(f"JSON report: {settings.json}")
