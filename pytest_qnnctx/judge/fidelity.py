"""Does what came out of the board look like the FP32 model's output at all?

No accuracy is judged here: that is the task metric's. What is found is what a metric or a cosine
can miss: NaN, an output that does not follow its input, a scale that is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_qnnctx.model import Array

    _Floats = npt.NDArray[np.float64]

#: The least-squares slope of the device's values over the reference's must lie in here.
SCALE_RANGE = (0.5, 2.0)

#: Values of fewer quantization steps than this are mostly rounding, and say nothing of a scale.
_STEPS = 4.0
#: The same where the step is unknown, as a share of the largest reference value.
_SHARE = 0.02
WITHIN_STEPS = f"FP32 values are within {_STEPS:g} quantization steps of zero"
#: A constant output is suspicious where the reference varies by more than this share of its peak.
_VARIES = 0.1
#: An unknown step is taken as that of 8 bits over [0, 1] where the reference's peak is smaller
#: than this: a heat map of empty pictures is rounded to zero by an honest quantizer.
_SMALL_PEAK = 0.05
_SMALL_STEP = 1 / 255
#: Fewest values that can show that whole numbers were scaled.
_WHOLE_COUNT = 8


@dataclass(frozen=True)
class OutputFidelity:
    """One output over all samples.

    ``scale`` is the slope, None where it could not be judged (``skipped`` says why);
    ``problems`` are half-sentences without the output's name.
    """

    name: str
    scale: float | None
    skipped: str
    problems: tuple[str, ...]


def non_finite(
    outputs: Sequence[Mapping[str, Array]], *, infinity_too: bool = True
) -> dict[str, list[int]]:
    """The samples (by index) in which an output, by name, holds NaN or infinity."""
    bad = (lambda values: ~np.isfinite(values)) if infinity_too else np.isnan
    found: dict[str, list[int]] = {}
    for index, sample in enumerate(outputs):
        for name, array in sample.items():
            values = np.asarray(array)
            if values.dtype.kind not in "biu" and bad(values).any():
                found.setdefault(name, []).append(index)
    return found


def form_problems(
    device: Sequence[Mapping[str, Array]], reference: Sequence[Mapping[str, Array]]
) -> list[str]:
    """Differences of number, names and shapes, each said once."""
    if len(device) != len(reference):
        return [f"{len(device)} samples came out, the FP32 reference has {len(reference)}"]
    problems: dict[str, None] = {}
    for got, wanted in zip(device, reference, strict=True):
        for name in wanted:
            if name not in got:
                problems[f"output '{name}' is missing"] = None
            elif np.shape(got[name]) != np.shape(wanted[name]):
                shapes = f"{list(np.shape(got[name]))}, FP32: {list(np.shape(wanted[name]))}"
                problems[f"output '{name}' has shape {shapes}"] = None
        for name in got:
            if name not in wanted:
                problems[f"output '{name}' is not the FP32 model's"] = None
    return list(problems)


def compare(
    name: str, device: Sequence[Array], reference: Sequence[Array], step: float | None
) -> OutputFidelity:
    """Compare one output over all samples; both sides finite where judged, shapes equal.

    ``step`` is the output's quantization step in real units, None where it is unknown.
    """
    if not device or np.size(device[0]) == 0:
        return OutputFidelity(name, None, "no values", ())
    pairs = _Pairs(device, reference)
    peak, peak_device = pairs.peaks()
    if not step and peak < _SMALL_PEAK:
        step = _SMALL_STEP
    problems = ["is the same for all inputs"] if _is_stuck(pairs, peak, step or 0.0) else []
    scale, skipped, wrong = _scale(pairs, peak, peak_device, step)
    return OutputFidelity(name, scale, skipped, (*problems, *wrong))


@dataclass(frozen=True)
class _Pairs:
    """Device and reference, sample by sample in float64, only where both are finite.

    One sample is converted at a time: outputs of a whole data set can be large.
    """

    device: Sequence[Array]
    reference: Sequence[Array]

    def __iter__(self) -> Iterator[tuple[_Floats, _Floats]]:
        for got, wanted in zip(self.device, self.reference, strict=True):
            d = np.asarray(got, dtype=np.float64).reshape(-1)
            r = np.asarray(wanted, dtype=np.float64).reshape(-1)
            mask = np.isfinite(d) & np.isfinite(r)
            yield d[mask], r[mask]

    def peaks(self) -> tuple[float, float]:
        """The largest absolute value of the reference, and of the device."""
        peak = peak_device = 0.0
        for d, r in self:
            peak = max(peak, float(np.abs(r).max(initial=0.0)))
            peak_device = max(peak_device, float(np.abs(d).max(initial=0.0)))
        return peak, peak_device


def _is_stuck(pairs: _Pairs, peak: float, step: float) -> bool:
    """Whether the device's values never change although the reference's clearly do."""
    first = pairs.device[0]
    if len(pairs.device) < 2 or not all(np.array_equal(d, first) for d in pairs.device):
        return False
    least = np.asarray(pairs.reference[0], dtype=np.float64).copy()
    most = least.copy()
    for array in pairs.reference:
        np.minimum(least, array, out=least)
        np.maximum(most, array, out=most)
    finite = np.isfinite(least) & np.isfinite(most)
    variation = float((most[finite] - least[finite]).max(initial=0.0))
    if variation <= max(_VARIES * peak, _STEPS * step):
        return False
    # One label a sample: two samples with one mistake look the same as a stuck output.
    if np.size(first) == 1:
        labels = {float(np.asarray(array).reshape(-1)[0]) for array in pairs.reference}
        if all(label.is_integer() for label in labels):
            return len(labels) >= 3
    return True


def _scale(
    pairs: _Pairs, peak: float, peak_device: float, step: float | None
) -> tuple[float | None, str, tuple[str, ...]]:
    """The slope through the origin, why there is none, and what is wrong."""
    if peak == 0.0:
        return None, "the FP32 output is all zero", ()
    floor = _STEPS * step if step else _SHARE * peak
    count, dot, energy, energy_device, whole = 0, 0.0, 0.0, 0.0, True
    for d, r in pairs:
        chosen = np.abs(r) > floor
        x, y = r[chosen], d[chosen]
        count += x.size
        dot += float(np.dot(x, y))
        energy += float(np.dot(x, x))
        energy_device += float(np.dot(y, y))
        whole = whole and np.array_equal(r, np.round(r))
    if energy == 0.0:
        # The binary's own step may be what is wrong: it must not excuse values far too large.
        if step and peak_device > SCALE_RANGE[1] * peak + 2 * _STEPS * step:
            return None, "", (f"reaches {peak_device:.3g}, FP32 only {peak:.3g}",)
        return None, WITHIN_STEPS, ()
    slope = dot / energy
    low, high = SCALE_RANGE
    if low <= slope <= high:
        return slope, "", ()
    if whole:
        # Labels, counts and masks: only a scaled copy is a fault of scale, a wrong label is not.
        cosine = dot / (energy * energy_device) ** 0.5 if energy_device else 0.0
        if count < _WHOLE_COUNT or abs(cosine) < 0.9:
            return None, "whole numbers that differ (labels?): no scale", ()
    return slope, "", (f"has {slope:.4g} times the scale of FP32",)
