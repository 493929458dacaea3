"""What ``qnnctx doctor`` found, and how it is told: one screen, each cause and each step once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

#: A line of the report has about as many characters, where paths are counted as one word.
_WIDTH = 200
_PATH_WIDTH = 12


class State(StrEnum):
    """``OPTIONAL``: not there, and nobody asked for it. ``WAITS``: for a part above it."""

    OK = "ok"
    OPTIONAL = "-"
    WAITS = "waits"
    MISSING = "MISSING"
    WRONG = "WRONG"


@dataclass(frozen=True)
class Examined:
    """One thing that was looked at. ``cause`` is the error behind ``found``."""

    what: str
    state: State
    found: str
    next_step: str = ""
    cause: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing has to be done about it."""
        return self.state in (State.OK, State.OPTIONAL)


def report(examined: Sequence[Examined]) -> str:
    """One screen: a line a part, what was found, and what to do, the necessary first."""
    lines = [_fitted(f"{one.state:<8}{one.what}: {one.found}") for one in examined]
    told: set[str] = set()
    for title, states in (
        ("To do:", (State.WRONG, State.MISSING)),
        ("If you want more:", (State.OK, State.OPTIONAL)),
    ):
        steps: dict[str, list[str]] = {}
        for one in examined:
            if one.state in states and one.next_step and one.next_step not in told:
                steps.setdefault(one.next_step, []).append(one.what)
        told |= set(steps)
        if steps:
            lines += ["", title]
            lines += [_fitted(f"  {', '.join(whats)}: {step}") for step, whats in steps.items()]
    if all(one.good for one in examined):
        lines += ["", "Next: pytest --board sim, or a board of your boards.yaml"]
    return "\n".join(lines)


def told_once(examined: Sequence[Examined]) -> list[Examined]:
    """What fails for the same cause as a part before it waits for that part."""
    first: dict[str, str] = {}
    told = []
    for one in examined:
        if one.cause and one.cause in first:
            waits = f"for {first[one.cause]}"
            told.append(replace(one, state=State.WAITS, found=waits, next_step=""))
            continue
        if one.cause and not one.good:
            first[one.cause] = one.what
        told.append(one)
    return told


def _fitted(line: str) -> str:
    """``line``, cut at a word where it is too long; a path stays whole and counts little."""
    room = _WIDTH
    words = line.split(" ")
    for index, word in enumerate(words):
        room -= 1 + (min(len(word), _PATH_WIDTH) if "/" in word else len(word))
        if room < 0:
            return " ".join(words[:index]) + " ..."
    return line
