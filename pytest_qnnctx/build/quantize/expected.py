"""The encoding that a tensor is meant to have in the compiled graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_qnnctx.build.quantize.roles import WEIGHT_OPS

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


@dataclass(frozen=True)
class ExpectedEncoding:
    """``real = (q - zero_point) * scale``; one value, or one a channel along ``axis``."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    bits: int
    signed: bool
    axis: int | None = None


def is_qdq(model: ModelProto) -> bool:
    """Whether ``model`` holds QuantizeLinear or DequantizeLinear nodes."""
    return any(node.op_type in (QUANTIZE, DEQUANTIZE) for node in model.graph.node)


def read_expected(model: ModelProto) -> dict[str, ExpectedEncoding]:
    """What ``model``'s own Q/DQ nodes say, by the name of the float tensor.

    That is the input of a QuantizeLinear; for a weight that is stored quantized it is the output of
    its DequantizeLinear. A pair whose scale is computed in the graph is left out.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
    quantized = {n.output[0] for n in model.graph.node if n.op_type == QUANTIZE}
    # A graph output's own name is that of the DequantizeLinear which ends the graph.
    ends = {info.name for info in model.graph.output}
    outputs = {
        n.input[0]: n.output[0]
        for n in model.graph.node
        if n.op_type == DEQUANTIZE and n.output[0] in ends
    }
    found: dict[str, ExpectedEncoding] = {}
    for node in model.graph.node:
        if node.op_type == QUANTIZE:
            name = outputs.get(node.output[0], node.input[0])
        elif node.op_type == DEQUANTIZE and node.input[0] not in quantized:
            name = node.output[0]
        else:
            continue
        attributes = {a.name: a.i for a in node.attribute}
        stored = constants.get(node.input[0]) if node.op_type == DEQUANTIZE else None
        encoding = _encoding(node.input, constants, attributes, stored)
        if encoding is not None:
            found.setdefault(name, encoding)
    return found


def _encoding(
    inputs: object,
    constants: Mapping[str, TensorProto],
    attributes: Mapping[str, int],
    stored: TensorProto | None,
) -> ExpectedEncoding | None:
    from onnx import numpy_helper

    names = list(inputs)  # type: ignore[call-overload]
    if len(names) < 2 or names[1] not in constants:
        return None
    scale = numpy_helper.to_array(constants[names[1]])
    zero = constants.get(names[2]) if len(names) > 2 else None
    element = zero or stored
    bits, signed = _INTEGERS.get(element.data_type if element is not None else 2, (0, False))
    if not bits or attributes.get("block_size"):
        return None
    values = [0] * scale.size
    if zero is not None:
        values = [int(value) for value in numpy_helper.to_array(zero).flatten()]
    per_channel = scale.ndim == 1 and scale.size > 1
    return ExpectedEncoding(
        scale=tuple(float(value) for value in scale.flatten()),
        zero_point=tuple(values),
        bits=bits,
        signed=signed,
        axis=attributes.get("axis", 1) if per_channel else None,
    )


#: TensorProto.DataType -> (bits, signed); QuantizeLinear without a zero point makes uint8 (2).
_INTEGERS: Mapping[int, tuple[int, bool]] = {
    2: (8, False), 3: (8, True), 4: (16, False), 5: (16, True), 6: (32, True), 12: (32, False),
    21: (4, False), 22: (4, True),
}  # fmt: skip


def quantization_text(expected: Mapping[str, ExpectedEncoding], weights: frozenset[str]) -> str:
    """Short text such as "w8a16"; mixed widths are listed ("w4,8a16"), no encodings: "float32"."""
    if not expected:
        return "float32"
    weighty = {e.bits for name, e in expected.items() if name in weights}
    # A constant operand has a per-tensor encoding as an activation has; biases have 32 bits.
    others = {
        e.bits
        for name, e in expected.items()
        if name not in weights and e.bits < 32 and len(e.scale) == 1
    }

    def text(bits: set[int]) -> str:
        return ",".join(str(b) for b in sorted(bits)) or "?"

    return f"w{text(weighty)}a{text(others)}"


def weight_names(model: ModelProto) -> frozenset[str]:
    """Names, as :func:`read_expected` has them, of the weights of products and the like."""
    makers = {name: node for node in model.graph.node for name in node.output}
    found = set()
    for node in model.graph.node:
        if node.op_type not in WEIGHT_OPS or len(node.input) < 2:
            continue
        reader = makers.get(node.input[1])
        if reader is None or reader.op_type != DEQUANTIZE:
            continue
        writer = makers.get(reader.input[0])
        if writer is None:
            found.add(reader.output[0])
        elif writer.op_type == QUANTIZE and writer.input[0] not in makers:
            found.add(writer.input[0])
    return frozenset(found)
