"""What every host asks of a call, and the errors that they word alike."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from pytest_qnnctx.errors import InfrastructureError, UsageError


def check_limit(timeout_s: float) -> None:
    """Raises UsageError for what is no time limit; one of NaN would never expire."""
    if not timeout_s > 0:
        raise UsageError(
            f"a time limit must be a positive number of seconds, not {timeout_s}",
            next_step="give timeout_s a value above 0",
        )


def deadline_after(timeout_s: float) -> float:
    """The moment of ``time.monotonic()`` at which the (checked) limit ends."""
    check_limit(timeout_s)
    return time.monotonic() + timeout_s


def check_command(argv: Sequence[str]) -> tuple[str, ...]:
    """The command's words. Raises UsageError for what is no command."""
    command = tuple(argv)
    if isinstance(argv, str) or not command or not command[0] or any("\0" in w for w in command):
        raise UsageError(
            "a command is a list of words, the first of them its name, none with a NUL character",
            next_step='write ["ls", "-l"], not "ls -l"',
        )
    return command


def check_file(host: str, local: Path) -> None:
    """Raises UsageError where ``local`` is no file that can be copied to ``host``."""
    if not local.is_file():
        raise UsageError(
            f"{host}: there is no file '{local}' to copy to it",
            next_step="correct the path",
        )


def not_in_time(
    host: str, command: Sequence[str], timeout_s: float, output: str, *, killed: bool = True
) -> InfrastructureError:
    """The error of a command that was still running at its time limit."""
    said = output.strip()[-2000:]
    ending = "was killed" if killed else "may still run there: that it was killed is not confirmed"
    return InfrastructureError(
        f"{host}: {' '.join(command)[:300]} did not end within {timeout_s:g} s and {ending}"
        + (f"; its last words: {said}" if said else ""),
        next_step="see whether the host is overloaded, or allow more time",
    )


def no_directory(host: str, command: Sequence[str], cwd: str) -> InfrastructureError:
    """The error of a command whose working directory does not exist."""
    return InfrastructureError(
        f"{host}: cannot run {command[0]}: there is no directory '{cwd}'",
        next_step="see whether something removed it while the session was open",
    )


def closed(host: str) -> InfrastructureError:
    """The error of a call after ``close``."""
    return InfrastructureError(
        f"{host}: its session is closed",
        next_step="use it while it is open (a board: inside the test that leased it)",
    )
