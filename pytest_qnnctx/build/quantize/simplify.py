"""Bring an FP32 graph into the form that its encodings were made for.

AIMET gives no encoding to what the HTP compiler fuses: a convolution before a batch normalization,
a MatMul before the Add of its bias. Left as they are, those tensors would be float. Here such pairs
become one op, exactly; every tensor that has an encoding keeps its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_qnnctx.build.quantize.encodings import Encoding
from pytest_qnnctx.build.quantize.fold import (
    constants_to_initializers,
    drop_unused_constants,
    fold_constants,
    infer_shapes,
)
from pytest_qnnctx.build.quantize.graph import Graph, Node, view
from pytest_qnnctx.build.quantize.roles import channel_axis

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from onnx import ModelProto, NodeProto

    FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Simplified:
    """``entries`` as the new graph needs them.

    ``gone`` names tensors that the graph no longer has, ``made`` those that it did not have before.
    """

    entries: Mapping[str, Encoding]
    gone: frozenset[str]
    made: frozenset[str]


def simplify(model: ModelProto, entries: Mapping[str, Encoding]) -> Simplified:
    """Rewrite ``model`` in place. The result computes the same (to float rounding).

    Local functions are inlined, constants folded, batch normalizations folded into the
    convolution or Gemm before them and MatMul + Add joined to a Gemm, the last two only where the
    tensor in between has no encoding of its own.
    """
    from onnx.inliner import inline_local_functions

    if model.functions:
        model.CopyFrom(inline_local_functions(model))
    constants_to_initializers(model)
    before = _names(model)
    entries = _carry_through_layout(model, entries)
    fold_constants(model, floats=True)
    entries = _fold_batch_norms(model, entries)
    _join_matmul_add(model, entries)
    drop_unused_constants(model)
    infer_shapes(model)
    after = _names(model)
    return Simplified(entries, gone=before - after, made=after - before)


def _names(model: ModelProto) -> frozenset[str]:
    graph = model.graph
    names = {tensor.name for tensor in graph.initializer} | {info.name for info in graph.input}
    return frozenset(names.union(*(node.output for node in graph.node)))


def _carry_through_layout(
    model: ModelProto, entries: Mapping[str, Encoding]
) -> Mapping[str, Encoding]:
    """Give W's encoding to Transpose(W), so that folding the Transpose loses nothing."""
    graph = view(model)
    constant = set(graph.constants)
    carried = dict(entries)
    for node in graph.nodes:
        if node.op not in ("Transpose", "Identity") or node.inputs[0] not in constant:
            continue
        constant.add(node.outputs[0])
        entry = carried.get(node.inputs[0])
        if entry is None or node.outputs[0] in carried:
            continue
        axis = entry.axis
        if axis is not None and node.op == "Transpose":
            rank = len(graph.constants.get(node.inputs[0], ()))
            order = list(node.attributes.get("perm", range(rank - 1, -1, -1)))
            axis = order.index(axis % rank) if rank else axis
        carried[node.outputs[0]] = replace(entry, name=node.outputs[0], axis=axis)
    return carried


# --- batch normalization ----------------------------------------------------------------------


def _fold_batch_norms(model: ModelProto, entries: Mapping[str, Encoding]) -> Mapping[str, Encoding]:
    changed = dict(entries)
    graph = view(model)
    for norm in graph.nodes:
        if norm.op != "BatchNormalization" or norm.domain or len(norm.outputs) != 1:
            continue
        before = graph.producers.get(norm.inputs[0])
        if before is not None and _can_fold(graph, before, norm, entries):
            _fold_batch_norm(model, before, norm, changed)
            graph = view(model)
    return changed


def _can_fold(graph: Graph, before: Node, norm: Node, entries: Mapping[str, Encoding]) -> bool:
    if before.op not in ("Conv", "ConvTranspose", "Gemm") or before.domain:
        return False
    weights = before.inputs[1:]
    between = norm.inputs[0]
    follower = graph.only_consumer(between)
    return (
        between not in entries
        and follower is not None
        and follower.outputs == norm.outputs
        and all(name in graph.constants for name in (*weights, *norm.inputs[1:]) if name)
        and all(len(graph.consumers[name]) == 1 for name in weights if name)
        and before.attributes.get("alpha", 1.0) == before.attributes.get("beta", 1.0) == 1.0
        and not (before.op == "Gemm" and before.attributes.get("transA", 0))
        and not (before.op == "ConvTranspose" and before.attributes.get("group", 1) != 1)
        and _is_symmetric(entries.get(before.inputs[1]))
    )


def _is_symmetric(entry: Encoding | None) -> bool:
    """Whether scaling by a negative number, which mirrors the grid, keeps the values on it."""
    if entry is None or entry.is_float:
        return True
    middle = 0 if entry.signed else 2 ** (entry.bits - 1)
    return all(zero == middle for zero in entry.zero_point)


def _fold_batch_norm(
    model: ModelProto, before: Node, norm: Node, entries: dict[str, Encoding]
) -> None:
    """W' = W * k and b' = (b - mean) * k + beta for each output channel; scales times abs(k)."""
    import numpy as np
    from onnx import numpy_helper

    stored = {tensor.name: tensor for tensor in model.graph.initializer}

    def value(name: str) -> FloatArray:
        values: FloatArray = numpy_helper.to_array(stored[name]).astype(np.float64)
        return values

    gamma, beta, mean, variance = (value(name) for name in norm.inputs[1:5])
    factor = gamma / np.sqrt(variance + norm.attributes.get("epsilon", 1e-5))
    weight = before.inputs[1]
    rank = len(stored[weight].dims)
    axis = channel_axis(before, 1, rank)
    assert axis is not None
    shape = [1] * rank
    shape[axis] = -1
    folded = value(weight) * factor.reshape(shape)
    stored[weight].CopyFrom(numpy_helper.from_array(folded.astype(np.float32), weight))
    bias = before.inputs[2] if len(before.inputs) > 2 else ""
    old = value(bias).reshape(-1) if bias else np.zeros_like(mean)
    shifted = ((old - mean) * factor + beta).astype(np.float32)
    node = _proto(model, before)
    if bias:
        stored[bias].CopyFrom(numpy_helper.from_array(shifted, bias))
        entries.pop(bias, None)
    else:
        name = f"{norm.outputs[0]}_bias"
        model.graph.initializer.append(numpy_helper.from_array(shifted, name))
        node.input.extend([""] * (2 - len(node.input)) + [name])
    if weight in entries and not entries[weight].is_float:
        entries[weight] = _scaled(entries[weight], np.abs(factor), axis)
    model.graph.node.remove(_proto(model, norm))
    node.output[0] = norm.outputs[0]


def _scaled(entry: Encoding, factor: FloatArray, axis: int) -> Encoding:
    import numpy as np

    if entry.per_channel and len(entry.scale) != factor.size:
        return entry  # its channel count is wrong, which the coverage check reports
    scale = np.broadcast_to(np.array(entry.scale), factor.shape) * factor
    zero = tuple(np.broadcast_to(np.array(entry.zero_point), factor.shape).tolist())
    # A channel that is switched off (factor 0) is all zeros: any scale says so.
    positive = tuple(float(value) if value > 0 else 1.0 for value in scale)
    return replace(entry, scale=positive, zero_point=zero, per_channel=True, axis=axis)


def _proto(model: ModelProto, node: Node) -> NodeProto:
    return next(n for n in model.graph.node if tuple(n.output) == node.outputs)


# --- MatMul + Add -----------------------------------------------------------------------------


def _join_matmul_add(model: ModelProto, entries: Mapping[str, Encoding]) -> None:
    graph = view(model)
    for add in graph.nodes:
        if add.op != "Add" or add.domain:
            continue
        for position in (0, 1):
            product, bias = add.inputs[position], add.inputs[1 - position]
            matmul = graph.producers.get(product)
            if (
                matmul is not None
                and matmul.op == "MatMul"
                and product not in entries
                and graph.only_consumer(product) is not None
                and _is_linear(graph, matmul, bias)
            ):
                _join(model, graph, matmul, add, bias)
                graph = view(model)
                break


def _is_linear(graph: Graph, matmul: Node, bias: str) -> bool:
    """A constant 2-D weight, a constant bias along its columns, an input of known shape."""
    dims = graph.constants.get(matmul.inputs[1], ())
    bias_dims = graph.constants.get(bias)
    shape = graph.shapes.get(matmul.inputs[0], ())
    return (
        len(dims) == 2
        and bias_dims is not None
        and bias_dims[-1:] == dims[1:]
        and all(dim == 1 for dim in bias_dims[:-1])
        and len(bias_dims) <= len(shape)
        and len(shape) >= 2
        and all(isinstance(dim, int) for dim in shape)
    )


def _join(model: ModelProto, graph: Graph, matmul: Node, add: Node, bias: str) -> None:
    """Gemm; around it a Reshape to two dimensions and back where there are more."""
    import numpy as np
    from onnx import helper, numpy_helper

    source, weight = matmul.inputs
    shape = [int(dim) for dim in graph.shapes[source] if isinstance(dim, int)]
    columns = graph.constants[weight][1]
    output = add.outputs[0]
    stored = next(tensor for tensor in model.graph.initializer if tensor.name == bias)
    flat_bias = bias
    if len(stored.dims) != 1:
        flat_bias = f"{output}_bias"
        values = numpy_helper.to_array(stored).reshape(-1)
        model.graph.initializer.append(numpy_helper.from_array(values, flat_bias))
    nodes = []
    gemm_in, gemm_out = source, output
    if len(shape) > 2:
        gemm_in, gemm_out = f"{output}_rows_in", f"{output}_rows"
        sizes = {f"{output}_to_rows": [-1, shape[-1]], f"{output}_to_all": [*shape[:-1], columns]}
        for name, dims in sizes.items():
            model.graph.initializer.append(numpy_helper.from_array(np.array(dims, np.int64), name))
        first, last = sizes
        nodes.append(helper.make_node("Reshape", [source, first], [gemm_in], name=first))
    gemm = helper.make_node(
        "Gemm", [gemm_in, weight, flat_bias], [gemm_out], name=matmul.name or f"{output}_gemm"
    )
    nodes.append(gemm)
    if len(shape) > 2:
        nodes.append(helper.make_node("Reshape", [gemm_out, last], [output], name=last))
    model.graph.node.remove(_proto(model, matmul))
    old = _proto(model, add)
    index = list(model.graph.node).index(old)
    model.graph.node.remove(old)
    for offset, node in enumerate(nodes):
        model.graph.node.insert(index + offset, node)
