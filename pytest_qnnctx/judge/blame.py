"""Where a score was lost: in quantizing the model, or between it and the context binary."""

from __future__ import annotations

import math
from dataclasses import dataclass

_BINARY = "the context binary"
_BISECT = "; an op of the HTP differs from the CPU's: bisect the model by sub-graphs to find it"


@dataclass(frozen=True)
class Blame:
    """``losses`` maps a step to what it lost (negative: gained); ``worst`` is the step that lost
    most, empty where none lost anything. ``sentence`` says so to a person.
    """

    losses: dict[str, float]
    worst: str
    sentence: str


def blame(
    reference: float | None,
    quantized: float | None,
    device: float,
    *,
    larger_is_better: bool = True,
) -> Blame | None:
    """Compare the scores of the FP32 model, of the quantized one on a CPU, and of the binary.

    A score that was not taken is None. None comes back where there is nothing to compare.
    """
    if quantized is None:
        return None
    if any(score is not None and math.isnan(score) for score in (reference, quantized)):
        return None  # the metric or the FP32 model is at fault, and no step of ours
    sign = 1.0 if larger_is_better else -1.0
    losses = {}
    if reference is not None:
        losses["quantizing"] = sign * (reference - quantized)
    losses[_BINARY] = sign * (quantized - device)
    # A score of NaN lost everything, and NaN compares with nothing.
    weights = {step: math.inf if math.isnan(loss) else loss for step, loss in losses.items()}
    worst = max(weights, key=lambda step: weights[step])
    path = "" if reference is None else f"FP32 {reference:.4g} -> "
    path += f"quantized on CPU {quantized:.4g} -> binary {device:.4g}"
    if weights[worst] <= 0:
        return Blame(losses, "", f"{path}: no step lost anything")
    sentence = f"{path}: lost in {worst}"
    return Blame(losses, worst, sentence + (_BISECT if worst == _BINARY else ""))
