"""From real values to a tensor's native values and back, as ``qnn-net-run`` does on the host.

It imports numpy, so it is imported only where values are at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .exits import DoesNotFit
from .graph import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]


def encode(tensor: Tensor, values: Array) -> Array:
    """``values`` in the type that the graph takes, shaped as the graph has it.

    Floats are real values: q = clamp(round(x / scale) - offset). Halves are rounded to even, as
    ONNX's QuantizeLinear does; the vendor's tool rounds them away from zero. Values that are of
    the native type already are passed on as they are. Raises DoesNotFit for another shape, for
    NaN, for what cannot be represented, and for integers of another type where the tensor is
    quantized (they could be real values or codes).
    """
    if values.shape != tensor.shape:
        raise DoesNotFit(f"input {tensor} got an array of shape {list(values.shape)}")
    native = np.dtype(tensor.storage)
    floating = values.dtype.kind == "f"
    if floating and np.isnan(values).any():
        raise DoesNotFit(f"input {tensor} got {int(np.isnan(values).sum())} NaN value(s)")
    if values.dtype.newbyteorder("<") == native:
        return np.ascontiguousarray(values, native)
    if tensor.quantized:
        if not floating:
            raise DoesNotFit(
                f"input {tensor} got {values.dtype}: give real values as float32, or its own "
                f"{native} codes"
            )
        return _quantize(tensor, values, native)
    if native.kind == "f":
        with np.errstate(over="ignore"):
            cast = values.astype(native)
        if (np.isinf(cast) & np.isfinite(values)).any():
            raise DoesNotFit(f"input {tensor} got values beyond the range of {native}")
        return np.ascontiguousarray(cast)
    return _whole_numbers(tensor, values, native)


def decode(tensor: Tensor, values: Array) -> Array:
    """Native ``values`` as float32 real values: (q + offset) * scale where they are quantized.

    Raises DoesNotFit where a quantized tensor has no scale for the whole tensor, and for whole
    numbers that float32 cannot tell apart (beyond 2**24).
    """
    if not tensor.quantized:
        with np.errstate(over="ignore", invalid="ignore"):
            real = values.astype("<f4")
            if values.dtype.kind in "iu" and (real.astype(values.dtype) != values).any():
                raise DoesNotFit(f"tensor {tensor} holds numbers too large for float32")
        return real
    scale, offset = _scale(tensor)
    return ((values.astype("<f8") + offset) * scale).astype("<f4")


def _quantize(tensor: Tensor, values: Array, native: np.dtype[Any]) -> Array:
    scale, offset = _scale(tensor)
    limits = np.iinfo(native)
    # The division is float32's, so that halves fall as they do in QuantizeLinear.
    with np.errstate(over="ignore"):
        steps = np.rint(values.astype("<f4") / np.float32(scale)).astype("<f8") - offset
    codes: Array = np.clip(steps, limits.min, limits.max).astype(native)
    return codes


def _whole_numbers(tensor: Tensor, values: Array, native: np.dtype[Any]) -> Array:
    low, high = (0, 1) if native.kind == "b" else (np.iinfo(native).min, np.iinfo(native).max)
    whole = values.dtype.kind != "f" or bool((np.rint(values) == values).all())
    # Compared as Python numbers: 2**63 - 1 is no float64, and a cast would wrap around.
    fits = values.size == 0 or (low <= _exact(values.min()) and _exact(values.max()) <= high)
    if not (whole and fits):
        raise DoesNotFit(f"input {tensor} got values that are no {native}")
    return np.ascontiguousarray(values.astype(native))


def _exact(value: Any) -> float | int:
    number: float | int = value.item()
    return number


def _scale(tensor: Tensor) -> tuple[float, int]:
    if tensor.scale is None or tensor.offset is None or not tensor.scale > 0:
        raise DoesNotFit(
            f"tensor {tensor} has no scale and offset for the whole tensor: use native files"
        )
    return tensor.scale, tensor.offset
