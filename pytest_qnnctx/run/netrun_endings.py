"""What the ending of a netrun process means: whose fault it was, and what to do."""

from __future__ import annotations

import signal

from pytest_qnnctx.errors import InfrastructureError, ProductFailure, QnnctxError
from pytest_qnnctx.hosts.host import Completed
from pytest_qnnctx.netrun import exits
from pytest_qnnctx.process import CRASHES
from pytest_qnnctx.run.refusals import why_refused

_INSTALL = "install Python >= 3.11, onnxruntime and onnxruntime-qnn on it, and set python: in "
_TAIL = 1500


def error_of(done: Completed, *, board: str, binary: str, python: str) -> QnnctxError | None:
    """The error that ``done`` stands for, or None where netrun succeeded.

    ``board`` and ``binary`` are names for the message; ``python`` the interpreter on the board.
    """
    said = _said(done)
    code = done.returncode
    if code == exits.OK:
        return None
    if code in {126, 127}:
        return InfrastructureError(
            f"board {board} has no interpreter '{python}': {said}",
            next_step=f"{_INSTALL}boards.yaml to its interpreter",
        )
    if code == exits.NOT_INSTALLED:
        return InfrastructureError(
            f"board {board} lacks what runs a context: {said}",
            next_step=f"{_INSTALL}boards.yaml to the interpreter that has them",
        )
    if code == exits.REFUSED:
        return _refused(done, board, binary, said)
    if code == exits.DOES_NOT_FIT:
        return ProductFailure(
            f"{binary} on board {board}: {said}",
            next_step="feed what the compiled graph takes, in the order and shape that it has",
        )
    if code == exits.RUN_FAILED:
        return _run_failed(done, board, binary, said)
    if code > 128:
        return _ended_by(code - 128, done, board, binary, said)
    what = "took too long" if code == exits.TIME_LIMIT else f"failed (exit {code})"
    return InfrastructureError(
        f"netrun {what} with {binary} on board {board}: {said}",
        next_step="see whether the board hangs, is overloaded or its disk is full"
        + _tail(done.stderr),
    )


def _refused(done: Completed, board: str, binary: str, said: str) -> QnnctxError:
    cause = why_refused(done.stderr)
    kind = InfrastructureError if cause.board_at_fault else ProductFailure
    return kind(
        f"board {board} did not load {binary}: {cause.reason}. {said}",
        next_step=cause.next_step + _tail(done.stderr),
    )


def _run_failed(done: Completed, board: str, binary: str, said: str) -> QnnctxError:
    cause = why_refused(done.stderr)
    kind = InfrastructureError if cause.board_at_fault else ProductFailure
    reason = f" ({cause.reason})" if cause.board_at_fault else ""
    return kind(
        f"{binary} was loaded on board {board} but did not run{reason}: {said}",
        next_step="read the runtime's log" + _tail(done.stderr),
    )


def _ended_by(number: int, done: Completed, board: str, binary: str, said: str) -> QnnctxError:
    """Ended by a signal. A crash while running on hardware may be the driver's: no verdict."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    crashed = number in CRASHES
    if crashed and (exits.LOADING in said or exits.EMULATED in said):
        return ProductFailure(
            f"the QNN runtime crashed on {binary} ({name}) on board {board}: {said}",
            next_step="build it again, and compare its QNN version with the runtime's"
            + _tail(done.stderr),
        )
    return InfrastructureError(
        f"netrun was ended by {name} with {binary} on board {board}: {said}",
        next_step="look at the board's kernel log (out of memory? a cDSP restart?)"
        + _tail(done.stderr),
    )


def _said(done: Completed) -> str:
    """The error line that netrun wrote, or the last line of whatever else there was."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    for line in reversed(lines):
        if line.startswith("netrun: error: "):
            return line.removeprefix("netrun: error: ")
    return lines[-1].strip() if lines else "it said nothing"


def _tail(log: str) -> str:
    return f"\nThe end of its log:\n{log.strip()[-_TAIL:]}" if log.strip() else ""
