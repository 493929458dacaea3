"""The session's account, kept where all reports arrive: exit status, JSON, and the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.tally import EXIT_INFRASTRUCTURE, EXIT_MISSING, Tally

if TYPE_CHECKING:
    from pytest_qnnctx.workbench import Workbench


class Account:
    """Hooks of a session that uses the plugin, on the controller (or where there are no workers).

    A session that uses none of it has none of them: it pays for nothing and its exit status is
    pytest's own.
    """

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._tally = Tally()
        self._status = 0
        self._unwritten = ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember what must have a result in the end."""
        self._tally.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """The same, where workers collect."""
        self._tally.expect(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Every report of every test, from here or from a worker."""
        self._tally.add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be imported is no infrastructure matter."""
        self._tally.add_collection(failed=report.failed)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """The exit status, and the JSON report."""
        if not _runs_tests(session.config):
            return
        stopped = bool(session.shouldstop or session.shouldfail)
        self._status = self._tally.exit_status(int(exitstatus), stopped=stopped)
        session.exitstatus = self._status
        settings = self._workbench.settings
        if settings.json is None:
            return
        from pytest_qnnctx.heading import session_record
        from pytest_qnnctx.report.json_report import report_json, write_json

        records = self._tally.records
        whole = session_record(self._workbench, records)
        try:
            write_json(settings.json, report_json(whole, records, self._status))
        except InfrastructureError as error:
            self._unwritten = str(error)
            session.exitstatus = self._status = self._status or EXIT_INFRASTRUCTURE

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The table, and what the families of error and a missing result mean."""
        if not _runs_tests(terminalreporter.config):
            return
        if self._unwritten:
            terminalreporter.write_line(f"ERROR: {self._unwritten}", red=True)
        if self._tally.records or self._status == EXIT_MISSING:
            from pytest_qnnctx.summary import write_summary

            write_summary(
                terminalreporter,
                self._tally,
                self._workbench.settings,
                missing=self._status == EXIT_MISSING,
            )


def _runs_tests(config: pytest.Config) -> bool:
    """Whether this session is meant to run what it collects."""
    shows = ("collectonly", "show_fixtures_per_test", "showfixtures", "setupplan")
    return not any(getattr(config.option, name, False) for name in shows)
