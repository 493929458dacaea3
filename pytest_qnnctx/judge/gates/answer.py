"""How gates word their verdicts: evidence in one sentence, JSON values behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_qnnctx.errors import ProductFailure
from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.verdict import Outcome, Verdict

Value = float | int | str | None

_SHOWN_NAMES = 3


@dataclass(frozen=True)
class Answer:
    """The parts of a verdict that do not depend on the outcome."""

    gate: str
    limit: Value
    unit: str
    emulated: bool = False

    def passes(self, measured: Value, evidence: str, **details: Any) -> Verdict:
        """The condition holds."""
        return self._verdict(Outcome.PASS, measured, evidence, details)

    def fails(self, measured: Value, evidence: str, **details: Any) -> Verdict:
        """The condition does not hold."""
        return self._verdict(Outcome.FAIL, measured, evidence, details)

    def unknown(self, evidence: str, measured: Value = None, **details: Any) -> Verdict:
        """Nothing was shown either way; ``evidence`` says why, and what to do."""
        return self._verdict(Outcome.INCONCLUSIVE, measured, evidence, details)

    def _verdict(
        self, outcome: Outcome, measured: Value, evidence: str, details: Mapping[str, Any]
    ) -> Verdict:
        kept = {key: as_json(value) for key, value in details.items()}
        shown = as_json(measured)
        return Verdict(
            self.gate, outcome, shown, self.limit, self.unit, evidence, kept, self.emulated
        )


def as_json(value: Any) -> Any:
    """``value`` in builtin JSON types: numpy scalars unwrapped, NaN and infinity as text."""
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(item) for item in value]
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return str(value)


def listed(names: Iterable[str], shown: int = _SHOWN_NAMES) -> str:
    """The first names and how many more there are: ``a, b, c and 4 more``."""
    every = list(names)
    text = ", ".join(every[:shown])
    return f"{text} and {len(every) - shown} more" if len(every) > shown else text


def plural(count: int, noun: str) -> str:
    """``1 op``, ``2 ops``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def mib(size_bytes: int) -> str:
    """Bytes as MiB with what digits matter: ``2 MiB``, ``2.06 MiB``."""
    return f"{size_bytes / 2**20:.4g} MiB"


def first_line(text: object) -> str:
    """The first line of an error's text that is not empty."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[0] if lines else type(text).__name__


def not_taken(measurements: Measurements, need: Need, thing: str) -> str:
    """Why ``thing`` is not there to be judged, as a sentence."""
    if measurements.build_error is not None:
        return "no usable binary was built"
    why = measurements.missing.get(need, "")
    return f"{thing}: {first_line(why)}" if why else f"{thing}: not taken"


def subjects(error: ProductFailure | None, kinds: Sequence[str]) -> list[str]:
    """What the findings of these kinds are about, each once, in their order."""
    if error is None:
        return []
    return list(dict.fromkeys(f.subject for f in error.findings if f.kind in kinds))


def on_emulator(measurements: Measurements) -> bool:
    """Whether what was run was run on the emulator, by either witness."""
    board = measurements.board
    return measurements.emulated or (board is not None and board.emulated)
