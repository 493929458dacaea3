"""One entry of an AIMET encodings file: its plain form, and a reader for each file version.

Sources: real files of ``aimet-onnx`` 2.42.0, and AIMET's encoding specification.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_INT_DTYPE = re.compile(r"(u?)int([0-9]{1,2})\Z")
_FLOAT_DTYPE = re.compile(r"b?float([0-9]{1,2})[a-z0-9]*\Z")
_MAX_BITS = 32


@dataclass(frozen=True)
class Encoding:
    """How one tensor is quantized: ``real = (q - zero_point) * scale``.

    ``kind`` is "activation" or "param", or "" where the version does not say (2.0.0).
    ``scale`` and ``zero_point`` hold one value, or one a channel (or a block) in the file's order.
    ``axis`` is None where the file does not name it (0.6.1 and 1.0.0 never do). ``is_float`` marks
    an entry that asks for a float type; it has no scale. ``block_size`` is set for blockwise ones.
    """

    name: str
    kind: str
    bits: int
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    signed: bool = False
    is_float: bool = False
    per_channel: bool = False
    axis: int | None = None
    block_size: int | None = None

    @property
    def blockwise(self) -> bool:
        """Whether scales belong to blocks within a channel."""
        return self.block_size is not None

    @property
    def dtype(self) -> str:
        """Short text such as "int8", "uint16" or "float16"."""
        if self.is_float:
            return f"float{self.bits}"
        return f"{'' if self.signed else 'u'}int{self.bits}"


class WrongEntryError(Exception):
    """One entry is wrong; the text says how."""


def short_text(value: Any) -> str:
    """``repr`` of a value from the file, cut to what fits a message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# --- values -----------------------------------------------------------------------------------


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongEntryError(f"{what} is {value!r}, not a number")
    try:
        number = float(value)
    except OverflowError:
        raise WrongEntryError(f"{what} is too large") from None
    if not math.isfinite(number):
        raise WrongEntryError(f"{what} is {value!r}")
    return number


def _scale(value: Any) -> float:
    import numpy as np

    number = _number(value, "scale")
    if number <= 0:
        raise WrongEntryError(f"scale is {value!r}; a scale is greater than zero")
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(number)
    if not np.isfinite(single) or single <= 0:
        raise WrongEntryError(f"scale {value!r} does not fit a 32-bit float")
    return number


def _whole(value: Any, what: str) -> int:
    number = _number(value, what)
    if number != int(number):
        raise WrongEntryError(f"{what} is {value!r}, not a whole number")
    return int(number)


def _bits(value: Any) -> int:
    bits = _whole(value, "bit width")
    if not 1 <= bits <= _MAX_BITS:
        raise WrongEntryError(f"bit width is {bits}")
    return bits


def _flag(value: Any, what: str) -> bool:
    """A boolean; 0.6.1 writes the strings "True" and "False"."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise WrongEntryError(f"{what} is {value!r}, neither true nor false")


def _fields(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise WrongEntryError(f"it is {type(raw).__name__}, not an object")
    return raw


def _values(raw: Mapping[str, Any], key: str) -> list[Any]:
    value = raw.get(key)
    if not isinstance(value, list) or not value:
        raise WrongEntryError(f"{key!r} is {short_text(value)}, not a list of values")
    return value


def _flat(value: Any) -> list[Any]:
    """A number or lists of numbers, however deep, as one list."""
    if not isinstance(value, list):
        return [value]
    flat: list[Any] = []
    for item in value:
        flat += _flat(item)
    return flat


def _zero_points(
    offsets: list[int], bits: int, *, symmetric: bool, kind: str
) -> tuple[tuple[int, ...], bool]:
    """Zero points and signedness from offsets of the unsigned integer (0.6.1 and 1.0.0)."""
    half = 2 ** (bits - 1)
    for offset in offsets:
        if not -(2**bits) < offset <= 0:
            raise WrongEntryError(
                f"offset {offset} does not fit {bits} bits (it is zero or negative)"
            )
    if kind == "param" and symmetric and all(o in (-half, 1 - half) for o in offsets):
        return (0,) * len(offsets), True
    return tuple(-offset for offset in offsets), False


def _float_entry(kind: str, name: str, bits: int) -> Encoding:
    if bits not in (8, 16, 32):
        raise WrongEntryError(f"a float of {bits} bits")
    return Encoding(name, kind, bits, is_float=True)


# --- one reader a version ---------------------------------------------------------------------


def _read_061(kind: str, name: str, raw: Any) -> Encoding:
    """A list of objects, one a channel."""
    if not isinstance(raw, list) or not raw:
        raise WrongEntryError(f"it is {short_text(raw)}, not a list of encodings")
    channels = [_fields(item) for item in raw]
    bits = {_bits(channel.get("bitwidth")) for channel in channels}
    dtypes = {channel.get("dtype", "int") for channel in channels if _is_text(channel)}
    if len(bits) != 1 or len(dtypes) != 1:
        raise WrongEntryError("its channels differ in bit width or dtype")
    width, dtype = bits.pop(), dtypes.pop()
    if dtype == "float":
        return _float_entry(kind, name, width)
    if dtype != "int":
        raise WrongEntryError(f"dtype is {dtype!r}, neither 'int' nor 'float'")
    symmetric = {_flag(channel.get("is_symmetric", False), "is_symmetric") for channel in channels}
    pairs = [_scale_offset_061(channel, width) for channel in channels]
    zero_point, signed = _zero_points(
        [offset for _, offset in pairs], width, symmetric=symmetric == {True}, kind=kind
    )
    scale = tuple(scale for scale, _ in pairs)
    return Encoding(name, kind, width, scale, zero_point, signed=signed, per_channel=len(scale) > 1)


def _is_text(channel: Mapping[str, Any]) -> bool:
    dtype = channel.get("dtype", "int")
    if not isinstance(dtype, str):
        raise WrongEntryError(f"dtype is {short_text(dtype)}, not text")
    return True


def _scale_offset_061(channel: Mapping[str, Any], bits: int) -> tuple[float, int]:
    if "scale" in channel or "offset" in channel:
        return _scale(channel.get("scale")), _whole(channel.get("offset"), "offset")
    low = _number(channel.get("min"), "min")
    high = _number(channel.get("max"), "max")
    if not low <= 0 <= high or low == high:
        raise WrongEntryError(f"the range {low} to {high} does not hold zero")
    scale = _scale((high - low) / (2**bits - 1))
    return scale, round(low / scale)


def _read_100(kind: str, name: str, raw: Any) -> Encoding:
    """An object with lists of scales and offsets."""
    fields = _fields(raw)
    bits = _bits(fields.get("bw"))
    dtype = fields.get("dtype")
    if dtype in ("FLOAT", "FP"):
        return _float_entry(kind, name, bits)
    if dtype != "INT":
        raise WrongEntryError(f"dtype is {short_text(dtype)}, neither 'INT' nor 'FLOAT'")
    enc_type = fields.get("enc_type")
    if enc_type not in ("PER_TENSOR", "PER_CHANNEL", "PER_BLOCK", "LPBQ"):
        raise WrongEntryError(f"enc_type is {short_text(enc_type)}")
    scale = tuple(_scale(value) for value in _values(fields, "scale"))
    offsets = [_whole(value, "offset") for value in _values(fields, "offset")]
    if len(scale) != len(offsets):
        raise WrongEntryError(f"{len(scale)} scales but {len(offsets)} offsets")
    if enc_type == "PER_TENSOR" and len(scale) != 1:
        raise WrongEntryError(f"enc_type is PER_TENSOR but there are {len(scale)} scales")
    block_size = None
    if enc_type in ("PER_BLOCK", "LPBQ"):
        block_size = _positive(fields.get("block_size"), "block_size")
    zero_point, signed = _zero_points(
        offsets, bits, symmetric=_flag(fields.get("is_sym", False), "is_sym"), kind=kind
    )
    return Encoding(
        name,
        kind,
        bits,
        scale,
        zero_point,
        signed=signed,
        per_channel=enc_type != "PER_TENSOR",
        block_size=block_size,
    )


def _positive(value: Any, what: str) -> int:
    number = _whole(value, what)
    if number < 1:
        raise WrongEntryError(f"{what} is {number}")
    return number


def _read_200(kind: str, name: str, raw: Any) -> Encoding:
    """An object in the words of ONNX's QuantizeLinear."""
    fields = _fields(raw)
    dtype = fields.get("output_dtype")
    if not isinstance(dtype, str):
        raise WrongEntryError(f"output_dtype is {short_text(dtype)}, not text")
    if match := _FLOAT_DTYPE.match(dtype):
        return _float_entry(kind, name, int(match[1]))
    match = _INT_DTYPE.match(dtype)
    if not match:
        raise WrongEntryError(f"output_dtype is {dtype!r}")
    signed, bits = not match[1], _bits(int(match[2]))
    block_size = None
    if fields.get("block_size") is not None:
        block_size = _positive(fields["block_size"], "block_size")
    key = "per_channel_float_scale" if "per_channel_float_scale" in fields else "y_scale"
    raw_scale = fields.get(key)
    scale = tuple(_scale(value) for value in _flat(raw_scale))
    if not scale:
        raise WrongEntryError(f"{key} is empty")
    raw_zero = fields.get("y_zero_point")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    zero = (
        (0,) * len(scale)
        if raw_zero is None
        else tuple(_whole(value, "y_zero_point") for value in _flat(raw_zero))
    )
    if len(zero) != len(scale):
        raise WrongEntryError(f"{len(scale)} scales but {len(zero)} zero points")
    if not all(low <= value <= high for value in zero):
        raise WrongEntryError(f"a zero point lies outside {dtype}")
    axis = fields.get("axis")
    if axis is not None:
        axis = _whole(axis, "axis")
    per_channel = isinstance(raw_scale, list) and (axis is not None or len(scale) > 1)
    if per_channel and axis is None:
        raise WrongEntryError(f"{len(scale)} scales but no axis")
    return Encoding(
        name,
        kind,
        bits,
        scale,
        zero,
        signed=signed,
        per_channel=per_channel,
        axis=axis,
        block_size=block_size,
    )


READERS: Mapping[str, Callable[[str, str, Any], Encoding]] = {
    "0.6.1": _read_061,
    "1.0.0": _read_100,
    "2.0.0": _read_200,
}
