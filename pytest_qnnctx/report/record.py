"""The record of one test and of the session: what every form of the report is made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_qnnctx.judge.verdict import Verdict
from pytest_qnnctx.model import Artifact


@dataclass(frozen=True)
class Problem:
    """Why a test did not pass.

    ``family``: product, infrastructure, usage, or test for an exception of the test's own code.
    """

    family: str
    message: str


@dataclass(frozen=True)
class TestRecord:
    """One test. ``outcome`` is passed, failed or error; ``gates`` and ``artifact`` are plain JSON.

    ``emulated`` tells the emulator from hardware; None where the test used no board.
    ``xfail`` is True where the failure was expected, so that pytest does not count it.
    """

    __test__ = False  # no test class, whatever its name says to pytest

    nodeid: str
    outcome: str
    board: str | None = None
    emulated: bool | None = None
    xfail: bool = False
    model: str | None = None
    artifact: Mapping[str, Any] | None = None
    gates: Sequence[Mapping[str, Any]] = ()
    problem: Problem | None = None

    def to_json(self) -> dict[str, Any]:
        """Builtin types only, so that xdist can carry it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TestRecord:
        """The inverse of :meth:`to_json`."""
        problem = data["problem"]
        values = {**data, "gates": tuple(data["gates"])}
        return cls(**{**values, "problem": Problem(**problem) if problem else None})


@dataclass(frozen=True)
class SessionRecord:
    """What held for all tests. ``emulated`` is None where no board was used."""

    versions: Mapping[str, str] = field(default_factory=dict)
    selector: str | None = None
    boards: Sequence[str] = ()
    target: str | None = None
    toolchain: str | None = None
    emulated: bool | None = None


def gate_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as builtin types; a number that is not finite becomes text, for JSON has none."""
    return {
        "gate": verdict.gate,
        "verdict": verdict.outcome.value,
        "measured": plain(verdict.measured),
        "limit": plain(verdict.limit),
        "unit": verdict.unit,
        "evidence": verdict.evidence,
        "emulated": bool(verdict.emulated),
        "details": plain(dict(verdict.details)),
    }


def artifact_json(artifact: Artifact) -> dict[str, Any]:
    """An artifact as builtin types, its provenance included."""
    return {
        "file": artifact.path.name,
        "sha256": artifact.sha256,
        "size_bytes": int(artifact.size_bytes),
        "provenance": plain(artifact.provenance.to_json()) if artifact.provenance else None,
    }


def plain(value: Any) -> Any:
    """``value`` made of builtin types that strict JSON and execnet can carry."""
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return plain(value.item())  # a numpy scalar
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)
