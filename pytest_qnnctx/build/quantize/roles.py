"""What each input of an ONNX op is to the quantizer: weight, bias, plain number or activation."""

from __future__ import annotations

from enum import StrEnum

from pytest_qnnctx.build.quantize.graph import Graph, Node


class Role(StrEnum):
    """``FLOAT`` inputs (a clip's bounds, a resize's scales) are read by the compiler as numbers."""

    ACTIVATION = "activation"
    WEIGHT = "weight"
    BIAS = "bias"
    FLOAT = "float"


_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
#: Their scale is 8 bits unsigned, whatever the activations are (measured with QNN 2.51, v68).
NORMALIZATIONS = frozenset(
    {"BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"}
)
_BIAS_OPS = _CONVOLUTIONS | NORMALIZATIONS | {"Gemm"}
#: Input 1 of these is a weight.
WEIGHT_OPS = _BIAS_OPS | {"MatMul"}
#: From this position on, float inputs of these ops are numbers, not data.
_NUMBERS_FROM = {
    "Resize": 1, "Upsample": 1, "Clip": 1, "Pad": 1, "Dropout": 1, "BatchNormalization": 3,
    "NonMaxSuppression": 2, "RoiAlign": 2, "Range": 0, "OneHot": 1, "Unsqueeze": 1, "Squeeze": 1,
}  # fmt: skip

#: Output = a selection of input 0's values (or of zero): same encoding. ONNX only.
FOLLOWS_INPUT = frozenset(
    {"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout", "MaxPool",
     "GlobalMaxPool", "Slice", "Split", "Gather", "GatherND", "GatherElements", "Expand", "Tile",
     "DepthToSpace", "SpaceToDepth", "Pad", "ReduceMax", "ReduceMin", "TopK", "Compress",
     "Upsample", "Resize", "ReverseSequence"}
)  # fmt: skip
#: Output = exactly input 0's values in another order: the encoding may come from either side.
LAYOUT = frozenset(
    {"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout",
     "DepthToSpace", "SpaceToDepth"}
)  # fmt: skip
#: The compiler fuses these into the op before them.
FUSED_ACTIVATIONS = frozenset({"Relu", "Clip"})


def role_of(node: Node, position: int, graph: Graph) -> Role:
    """The role of input ``position`` of ``node``."""
    if node.domain not in ("", "com.microsoft"):
        return Role.ACTIVATION
    constant = node.inputs[position] in graph.constants
    if position >= _NUMBERS_FROM.get(node.op, len(node.inputs)):
        return Role.FLOAT
    if position == 2 and constant and node.op in _BIAS_OPS:
        return Role.BIAS
    is_weight = position == 1 and constant and node.op in WEIGHT_OPS
    return Role.WEIGHT if is_weight else Role.ACTIVATION


def channel_axis(node: Node, position: int, rank: int) -> int | None:
    """The axis of a weight's output channels, None where the op has none."""
    if position != 1:
        return None
    if node.op == "Conv":
        return 0
    if node.op == "ConvTranspose":
        return 1
    if node.op == "Gemm":
        return 0 if node.attributes.get("transB", 0) else 1
    if node.op == "MatMul" and rank >= 2:
        return rank - 1
    return 0 if node.op in NORMALIZATIONS else None
