"""What a host is: a machine on which commands are run, and to and from which files are copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """A finished remote command. ``returncode`` is 128+N where signal N ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Host(Protocol):
    """An open connection to one machine. Every call raises InfrastructureError when the machine,
    the connection or the time limit fails; a command's own non-zero exit is no error here.

    ``name`` is how messages call it: "board rb3-01", "build host buildbox", "this machine".
    """

    name: str

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run ``argv`` there (never through an unquoted shell string)."""
        ...

    def push(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy a file there; afterwards ``remote`` is whole or does not exist."""
        ...

    def pull(self, remote: str, local: Path, *, timeout_s: float) -> None:
        """Copy a file or a directory tree from there."""
        ...

    def close(self) -> None:
        """End the connection; safe to call twice."""
        ...
