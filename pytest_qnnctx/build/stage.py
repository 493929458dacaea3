"""One tool's run in a build of several stages, as it is kept and diagnosed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageRun:
    """A finished run of one of the SDK's tools.

    ``stage`` is the tool's name ("qairt-converter"); ``command`` what is recorded of its command
    line (file names, no scratch directories). ``returncode`` is 128+N where signal N ended it.
    ``log`` is all that it printed, on both streams. ``produced`` tells whether the file that it was
    run for is there and not empty: a tool may exit 0 without it.
    """

    stage: str
    command: tuple[str, ...]
    returncode: int
    log: str
    seconds: float
    produced: bool = True
