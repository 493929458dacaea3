"""The exit status: no missing result is hidden, and no board's failure is put on a model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_qnnctx.report.record import Problem, TestRecord
from pytest_qnnctx.tally import Tally


def report(nodeid: str, family: str | None = None, *, failed: bool = False):
    made = SimpleNamespace(nodeid=nodeid, failed=failed)
    if family is not None:
        outcome = "error" if family == "infrastructure" else "failed"
        made.qnnctx = TestRecord(nodeid, outcome, problem=Problem(family, "why")).to_json()
    return made


PASSED = report("a")
BOARD_LOST = report("b", "infrastructure", failed=True)
BAD_MODEL = report("c", "product", failed=True)
PLAIN_FAILURE = report("d", failed=True)


@pytest.mark.parametrize(
    ("reports", "own", "status"),
    [
        ([PASSED], 0, 0),
        ([PASSED, BOARD_LOST], 1, 75),
        ([BOARD_LOST, BAD_MODEL], 1, 1),
        ([BOARD_LOST, PLAIN_FAILURE], 1, 1),
        ([BAD_MODEL], 1, 1),
        ([PASSED], 2, 2),
        ([], 5, 5),
    ],
)
def test_exit_status(reports, own, status):
    tally = Tally()
    tally.expect(one.nodeid for one in reports)
    for one in reports:
        tally.add(one)
    assert tally.exit_status(own, stopped=False) == status


def test_a_test_without_a_result_is_never_green():
    tally = Tally()
    tally.expect(["a", "lost"])
    tally.add(PASSED)
    assert tally.missing == ["lost"]
    assert tally.exit_status(0, stopped=False) == 76
    assert tally.exit_status(1, stopped=False) == 76
    assert tally.exit_status(1, stopped=True) == 1
    assert tally.exit_status(3, stopped=False) == 3
