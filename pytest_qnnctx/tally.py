"""The session's account: every collected test has a result, and who must act on the bad ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_qnnctx.report.record import TestRecord

#: Nothing failed but infrastructure. (Not among pytest's own, 0 to 6; EX_TEMPFAIL of sysexits.)
EXIT_INFRASTRUCTURE = 75
#: A collected test has no result.
EXIT_MISSING = 76


@dataclass
class Tally:
    """Grows with each report, on the controller (or where there are no workers)."""

    records: list[TestRecord] = field(default_factory=list)
    collected: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    infrastructure: int = 0
    other_failures: int = 0

    def expect(self, nodeids: Iterable[str]) -> None:
        """These tests were collected and must be reported."""
        self.collected.update(nodeids)

    def add(self, report: pytest.TestReport) -> None:
        """Count one phase's report, and keep its record where it has one."""
        self.reported.add(report.nodeid)
        record = None
        if (data := getattr(report, "qnnctx", None)) is not None:
            from pytest_qnnctx.report.record import TestRecord

            record = TestRecord.from_json(data)
            self.records.append(record)
        if report.failed:
            family = record.problem.family if record and record.problem else ""
            if family == "infrastructure":
                self.infrastructure += 1
            else:
                self.other_failures += 1

    def add_collection(self, *, failed: bool) -> None:
        """Count a file that could not be collected."""
        self.other_failures += failed

    @property
    def missing(self) -> list[str]:
        """Collected tests without any report."""
        return sorted(self.collected - self.reported)

    def exit_status(self, pytests_own: int, *, stopped: bool) -> int:
        """Pytest's status, unless it would hide a missing result or blame a model for a board.

        ``stopped`` is True where pytest was told to stop early (``-x``, ``--maxfail``).
        """
        if pytests_own not in (0, 1):
            return pytests_own
        if self.missing and not stopped:
            return EXIT_MISSING
        if self.infrastructure and not self.other_failures:
            return EXIT_INFRASTRUCTURE
        return pytests_own
