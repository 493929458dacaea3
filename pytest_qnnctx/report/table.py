"""The terminal's table: a row a gate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pytest_qnnctx.judge.verdict import shown
from pytest_qnnctx.report.record import TestRecord

HEADINGS = ("gate", "verdict", "measured", "limit", "unit", "board", "evidence")
_VERDICTS = {"pass": "pass", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}
#: Evidence that has less room than this in its column goes below its row instead.
_NARROWEST = 48
_GAP = "  "
_BELOW = "      "
#: Values and limits that are text are wrapped to this width.
_WIDEST = 24
#: So many notes on one build are written out; the JSON report has all.
_SHOWN_NOTES = 5


@dataclass(frozen=True)
class Line:
    """One line of the table; ``good`` is None for a heading and for a ``note`` on the build."""

    text: str
    good: bool | None = None
    note: bool = False


def table_lines(records: Iterable[TestRecord], width: int) -> list[Line]:
    """The table of all tests that judged anything, for a terminal of ``width`` columns.

    Evidence stands in the last column, or below its row where the terminal is narrow; it is
    wrapped and never cut. What the build found worth saying follows once for each binary.
    """
    judged = [record for record in records if record.gates]
    if not judged:
        return []
    rows = [[_cells(gate, record) for gate in record.gates] for record in judged]
    every = [[[name] for name in HEADINGS[:-1]], *(cells for part in rows for cells, _ in part)]
    widths = [max(len(text) for cells in every for text in cells[i]) for i in range(len(every[0]))]
    indent = sum(widths) + len(_GAP) * len(widths)
    beside = width - indent >= _NARROWEST
    headings = HEADINGS if beside else HEADINGS[:-1]
    lines = [Line(_row(headings, widths))]
    told: set[str] = set()
    for record, part in zip(judged, rows, strict=True):
        artifact = record.artifact or {}
        made = f"  {artifact['file']} sha256 {artifact['sha256'][:12]}" if artifact else ""
        lines.append(Line(f"{record.nodeid}{made}"))
        for (cells, evidence), gate in zip(part, record.gates, strict=True):
            good = gate["verdict"] == "pass"
            if beside:
                columns, below = [*cells, _wrapped(evidence, width - indent)], []
            else:
                columns, below = cells, _wrapped(evidence, max(width - len(_BELOW), _NARROWEST))
            texts = [_row(row, widths) for row in zip_longest(*columns, fillvalue="")]
            lines += [Line(text, good) for text in (*texts, *(_BELOW + text for text in below))]
        if artifact and artifact["sha256"] not in told:
            told.add(artifact["sha256"])
            lines += [Line(text, note=True) for text in _notes(artifact, width)]
    return lines


def _notes(artifact: Mapping[str, Any], width: int) -> list[str]:
    """The findings of the build that made ``artifact``, such as a float fallback allowed to it."""
    findings = (artifact.get("provenance") or {}).get("findings") or ()
    notes = [
        f"build: {finding['kind'].replace('_', ' ')}: {finding['message']}"
        for finding in findings[:_SHOWN_NOTES]
    ]
    if more := len(findings) - len(notes):
        notes.append(f"build: {more} more notes, all in the JSON report")
    lines = []
    for note in notes:
        first, *rest = _wrapped(note, max(width - len(_BELOW), _NARROWEST))
        lines += [f"  {first}", *(_BELOW + text for text in rest)]
    return lines


def _cells(gate: Mapping[str, Any], record: TestRecord) -> tuple[list[list[str]], str]:
    """A row's cells but the last, each a list of lines, and the evidence."""
    evidence = str(gate["evidence"])
    if gate["emulated"] and "emulated" not in evidence:
        evidence = f"{evidence} (emulated)"
    cells = (
        f"  {gate['gate']}",
        _VERDICTS[gate["verdict"]],
        *(_wrapped(shown(gate[name]), _WIDEST) for name in ("measured", "limit")),
        gate["unit"] or "-",
        record.board or "-",
    )
    return [cell if isinstance(cell, list) else [cell] for cell in cells], evidence


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    sizes = (*widths, 0)
    return _GAP.join(cell.ljust(size) for cell, size in zip(cells, sizes, strict=False)).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
