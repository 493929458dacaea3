"""What a gate is: a condition on Measurements, set by a marker, answered by a Verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.verdict import Verdict


@dataclass(frozen=True)
class Condition:
    """A gate with the limits of one test. ``limits`` holds the marker's arguments by name."""

    gate: Gate
    limits: Mapping[str, Any]


class Gate(Protocol):
    """A gate; offered through the hook ``pytest_qnnctx_gates``.

    ``name`` is also the marker's. ``signature`` and ``help`` make the marker's line in
    ``pytest --markers``. An ``always`` gate is judged in every test, marked or not.
    """

    name: str
    signature: str
    help: str
    always: bool

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check a marker's arguments and name them. Raises UsageError that says what is wrong."""
        ...

    def needs(self, limits: Mapping[str, Any]) -> frozenset[Need]:
        """What must be observed for these limits."""
        ...

    def judge(self, limits: Mapping[str, Any], measurements: Measurements) -> Verdict:
        """Decide. Never raises for what was observed: what is unmeasured is inconclusive."""
        ...
