"""A verdict: what a gate concluded, with the value, the limit and the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """Only ``PASS`` lets a model ship: an inconclusive gate fails its test as well."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


def shown(value: Any) -> str:
    """A measured value or a limit for people: four digits of a float, all of anything else."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Verdict:
    """The result of one gate.

    ``measured`` and ``limit`` are numbers or short text, in ``unit``; ``measured`` is None where
    nothing could be measured. ``evidence`` is one sentence, ``details`` (JSON values) backs it.
    ``emulated`` is True where the value was taken on the emulator.
    """

    gate: str
    outcome: Outcome
    measured: float | int | str | None
    limit: float | int | str | None
    unit: str
    evidence: str
    details: Mapping[str, Any] = field(default_factory=dict)
    emulated: bool = False
