"""What a test's end means: the report of one phase, sorted by who must act."""

from __future__ import annotations

import errno
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_qnnctx.errors import BuildFailed, InfrastructureError, ProductFailure, QnnctxError
from pytest_qnnctx.fixtures import ACCEPTANCE, ARTIFACT, BOARD, NAMES, WATCHED
from pytest_qnnctx.report.junit import junit_properties
from pytest_qnnctx.report.record import Problem, TestRecord, artifact_json, gate_json

if TYPE_CHECKING:
    from pytest_qnnctx.acceptance import Acceptance
    from pytest_qnnctx.model import Artifact

_LOG_LINES = 60
#: A disk that is full, over quota or read-only says nothing about a model, whoever wrote to it.
_DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class Outcomes:
    """Hooks around the tests of a session that uses the plugin."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Judge what the test left unjudged; a verdict stands even where the test swallowed it."""
        item.stash[WATCHED] = True
        try:
            yield
        except (pytest.skip.Exception, pytest.xfail.Exception):
            made = item.stash.get(ACCEPTANCE, None)
            if made is not None and made.begun:
                made.insist()  # a verdict is no reason to skip
            raise
        made = item.stash.get(ACCEPTANCE, None)
        if made is not None:
            made.insist()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Sort the outcome by who must act."""
        report = yield
        if NAMES.intersection(getattr(item, "fixturenames", ())):
            finish_report(item, call.excinfo.value if call.excinfo else None, report)
        return report


def watch(config: pytest.Config, item: pytest.Item | None = None) -> None:
    """Register :class:`Outcomes` once; ``item`` asked for a fixture of ours while it ran."""
    if not config.pluginmanager.has_plugin("qnnctx-outcomes"):
        config.pluginmanager.register(Outcomes(), "qnnctx-outcomes")
    names: list[str] = getattr(item, "fixturenames", [])
    if item is not None and not NAMES.intersection(names):
        item.fixturenames = [*names, "acceptance"]  # type: ignore[attr-defined]


def family_of(error: BaseException) -> str:
    """product, infrastructure or usage; empty for an error that is not one of ours."""
    if isinstance(error, InfrastructureError):
        return "infrastructure"
    if isinstance(error, OSError) and error.errno in _DISK_IS_FULL:
        return "infrastructure"
    if isinstance(error, ProductFailure):
        return "product"
    return "usage" if isinstance(error, QnnctxError) else ""


def finish_report(
    item: pytest.Item, error: BaseException | None, report: pytest.TestReport
) -> None:
    """Give ``report`` the family that its error has, and our record of the test.

    A ProductFailure in a fixture is a failure of the test, as it would be in its body; an
    InfrastructureError in the body is an error, as it would be in a fixture. No xfail hides it,
    nor a UsageError: what was expected is a bad model. Each is told in a sentence, with no
    traceback.
    """
    problem = None
    if error is not None and (family := family_of(error)):
        problem = Problem(family, str(error))
        if family != "product":
            report.outcome = "failed"
            report.__dict__.pop("wasxfail", None)
        if report.outcome == "failed":
            report.longrepr = _told(item, error)
            build = getattr(error, "build_error", error)
            if isinstance(build, BuildFailed) and build.log and not build.findings:
                tail = "\n".join(build.log.strip().splitlines()[-_LOG_LINES:])
                report.sections.append(("compiler's log", tail))
            if family == "product":
                report.when = "call"
            elif family == "infrastructure":
                report.when = "setup"
    elif error is not None:
        problem = Problem("test", f"{type(error).__name__}: {error}")
    if _is_last_word(item, report, error):
        record = _record(item, report, problem)
        # On the item: JUnit takes them from the last report, which is the teardown's.
        item.user_properties.extend(junit_properties(record))
        report.qnnctx = record.to_json()  # type: ignore[attr-defined]


def _told(item: pytest.Item, error: BaseException) -> str:
    """The error's sentence, after the line of the test that led to it."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(item.path):
            where = f"{item.path.name}:{trace.tb_lineno}: "
        trace = trace.tb_next
    return f"{where}{error}"


def _is_last_word(
    item: pytest.Item, report: pytest.TestReport, error: BaseException | None
) -> bool:
    """Whether this phase decides the test, and the test is one of ours."""
    ours = NAMES.intersection(getattr(item, "fixturenames", ()))
    skipped = report.outcome == "skipped" and not hasattr(report, "wasxfail")
    return bool(ours) and not skipped and (report.when == "call" or error is not None)


def _model_name(acceptance: Acceptance | None, artifact: Artifact | None) -> str | None:
    if acceptance is not None:
        return acceptance.model.name
    provenance = artifact.provenance if artifact else None
    return provenance.model if provenance else None


def _record(item: pytest.Item, report: pytest.TestReport, problem: Problem | None) -> TestRecord:
    acceptance = item.stash.get(ACCEPTANCE, None)
    artifact = acceptance.measurements.artifact if acceptance else None
    artifact = artifact or item.stash.get(ARTIFACT, None)
    outcome = "passed"
    if problem is not None:
        outcome = "failed" if report.when == "call" else "error"
    leased = item.stash.get(BOARD, None)
    return TestRecord(
        nodeid=item.nodeid,
        outcome=outcome,
        board=leased.name if leased else None,
        emulated=leased.facts.emulated if leased else None,
        xfail=hasattr(report, "wasxfail"),
        model=_model_name(acceptance, artifact),
        artifact=artifact_json(artifact) if artifact else None,
        gates=tuple(gate_json(verdict) for verdict in acceptance.verdicts) if acceptance else (),
        problem=problem,
    )
