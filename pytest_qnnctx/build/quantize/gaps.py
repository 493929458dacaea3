"""Give tensors that the encodings leave out a range seen in the calibration inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pytest_qnnctx.build.quantize.coverage import Coverage
from pytest_qnnctx.build.quantize.encodings import Encoding

#: No range is taken for narrower than this: a tensor that was always zero still needs a scale.
_LEAST_RANGE = 1e-6


def gaps(coverage: Coverage) -> tuple[str, ...]:
    """The uncovered activations, where they are all that is wrong; otherwise nothing."""
    if any(finding.kind != "tensor_uncovered" for finding in coverage.findings):
        return ()
    return tuple(name for name in coverage.uncovered if name not in coverage.weights)


def activation_bits(coverage: Coverage) -> int:
    """The width that most activations have (8 where there are none)."""
    widths = Counter(e.bits for n, e in coverage.assigned.items() if n not in coverage.weights)
    return widths.most_common(1)[0][0] if widths else 8


def encodings_from_ranges(
    ranges: Mapping[str, tuple[float, float]], bits: int
) -> dict[str, Encoding]:
    """An asymmetric encoding for each range, widened to hold zero exactly."""
    return {name: _from_range(name, low, high, bits) for name, (low, high) in ranges.items()}


def _from_range(name: str, low: float, high: float, bits: int) -> Encoding:
    low, high = min(low, 0.0), max(high, 0.0)
    steps = 2**bits - 1
    scale = max(high - low, _LEAST_RANGE) / steps
    return Encoding(name, "activation", bits, (scale,), (min(round(-low / scale), steps),))
