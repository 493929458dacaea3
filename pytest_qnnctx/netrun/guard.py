"""Runs the part that loads vendor libraries in a forked child that may crash, hang or print.

The child's stdout and stderr are relayed to our stderr line by line; what it has to report comes
back over a pipe of its own, so that neither can be mistaken for the other.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from .exits import INTERNAL, OK, STARTING, TIME_LIMIT, NetrunError

#: Called in the child with what it is about to do; see :mod:`.exits`.
Phase = Callable[[str], None]
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


@dataclass
class Ending:
    """How the child ended: an exit code, a line for people where it failed, and its result."""

    code: int = INTERNAL
    error: str = ""
    phase: str = STARTING
    result: dict[str, Any] = field(default_factory=dict)


class _Stopped(Exception):
    """A signal asked us to end."""


def supervise(
    work: Callable[[Phase], dict[str, Any]],
    *,
    time_limit_s: float | None,
    on_line: Callable[[str], NetrunError | None],
    meanwhile: Callable[[], None],
) -> Ending:
    """Run ``work`` in a child and wait for it.

    ``on_line`` gets each line of its output; an error that it returns ends the child.
    ``meanwhile`` is called once, while the child starts. A signal that asks us to end ends the
    child first, and the child never outlives this process.
    """
    started = time.monotonic()
    log_out, log_in = os.pipe()
    report_out, report_in = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(log_out)
        os.close(report_out)
        _be_the_child(work, parent, log_in, report_in)
    os.close(log_in)
    os.close(report_in)
    ending = Ending()
    verdict: str | None = None
    limit = None if time_limit_s is None else started + time_limit_s
    with _stopping_signals() as stopped:
        try:
            meanwhile()
            for source, line in _lines(log_out, report_out, limit):
                if source == report_out:
                    _note(ending, json.loads(line))
                else:
                    error = on_line(_ESCAPES.sub("", line))
                    if error is not None:
                        verdict, ending.code = str(error), error.code
                        break
        except TimeoutError:
            verdict = f"the time limit of {time_limit_s:g} s passed while {ending.phase}"
            ending.code = TIME_LIMIT
        except _Stopped:
            verdict = f"stopped by {signal.Signals(stopped[0]).name} while {ending.phase}"
            ending.code = 128 + stopped[0]
        finally:
            stopped.append(0)  # From here on a signal interrupts nothing: the end is near.
            if verdict is not None or sys.exc_info()[0] is not None:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            os.close(log_out)
            os.close(report_out)
    _conclude(ending, verdict, status)
    return ending


def _conclude(ending: Ending, verdict: str | None, status: int) -> None:
    """Bring together what we decided, how the child ended, and what it said before."""
    if verdict is not None:
        ending.error = verdict
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        ending.code = 128 + number
        ending.error = f"the runtime crashed ({signal.Signals(number).name}) while {ending.phase}"
    elif os.WEXITSTATUS(status) != ending.code:
        ending.code = INTERNAL
        ending.error = ending.error or f"the runtime ended the process while {ending.phase}"


def _note(ending: Ending, report: dict[str, Any]) -> None:
    for name, value in report.items():
        setattr(ending, name, value)


def _lines(log: int, report: int, limit: float | None) -> Iterator[tuple[int, str]]:
    """Whole lines of both pipes until both end. Raises TimeoutError at ``limit``."""
    pending = {log: b"", report: b""}
    with selectors.DefaultSelector() as selector:
        for pipe in pending:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = None if limit is None else limit - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 65536)
                *whole, rest = (pending[key.fd] + chunk).split(b"\n")
                if not chunk:
                    selector.unregister(key.fd)
                    whole, rest = ([rest] if rest else []), b""
                pending[key.fd] = rest
                for line in whole:
                    yield key.fd, line.decode(errors="replace")


@contextmanager
def _stopping_signals() -> Iterator[list[int]]:
    """Turn the signals that ask us to end into :class:`_Stopped`; the list gets their number."""
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if not stopped:
            stopped.append(number)
            raise _Stopped

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _be_the_child(
    work: Callable[[Phase], dict[str, Any]], parent: int, log: int, report: int
) -> None:
    """Do the work and end the process; never returns, whatever happens."""
    code = INTERNAL

    def tell(**values: Any) -> None:
        os.write(report, (json.dumps(values) + "\n").encode())

    try:
        for number in _STOPPING:
            signal.signal(number, signal.SIG_DFL)
        _die_with(parent)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        result = work(lambda phase: tell(phase=phase))
        code = OK
        tell(code=code, result=result)
    except NetrunError as error:
        code = error.code
        tell(code=code, error=" ".join(str(error).split()))
    except BaseException as error:
        tell(code=code, error=f"{type(error).__name__}: {' '.join(str(error).split())}")
    finally:
        # Vendor libraries are known to crash in their exit handlers, after all work is done.
        os._exit(code)


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process when ``parent`` dies, however it dies."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(INTERNAL)
