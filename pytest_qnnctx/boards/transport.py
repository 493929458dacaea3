"""What a transport is: a way to run commands on a board and to copy files to and from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pytest_qnnctx.boards.board import Board


@dataclass(frozen=True)
class Completed:
    """A finished remote command. ``returncode`` is 128+N where signal N ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Transport(Protocol):
    """An open connection to one board. Every call raises InfrastructureError when the board,
    the connection or the time limit fails; a command's own non-zero exit is no error here.
    """

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run ``argv`` on the board (never through an unquoted shell string)."""
        ...

    def push(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy a file to the board; afterwards ``remote`` is whole or does not exist."""
        ...

    def pull(self, remote: str, local: Path, *, timeout_s: float) -> None:
        """Copy a file or a directory tree from the board."""
        ...

    def close(self) -> None:
        """End the connection; safe to call twice."""
        ...


class TransportFactory(Protocol):
    """Opens a Transport; offered by name through the hook ``pytest_qnnctx_transports``."""

    def __call__(self, board: Board) -> Transport:
        """Open a connection. Raises InfrastructureError where the board cannot be reached."""
        ...
