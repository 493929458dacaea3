"""Replace what an ONNX graph computes from constants alone by the constant.

Exporters leave chains such as Shape -> Gather -> Concat -> Reshape. Once the inputs are fixed they
are constants, and only then is the shape of every inner tensor known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_qnnctx.errors import ProductFailure

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from onnx import ModelProto, NodeProto, TensorProto

    Array = npt.NDArray[np.generic]
    Constants = dict[str, TensorProto]

_MAX_ROUNDS = 100
_MAX_ELEMENTS = 1 << 24
_STRIPPED_ELEMENTS = 1024
_KEEP = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan", "RandomNormal", "RandomUniform",
     "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)  # fmt: skip


def constants_to_initializers(model: ModelProto) -> None:
    """Turn Constant nodes into initializers, and drop inputs that an initializer already gives."""
    from onnx import helper, numpy_helper

    graph = model.graph
    kept = []
    for node in graph.node:
        value = node.attribute[0] if node.op_type == "Constant" and node.attribute else None
        if value is None or value.name not in _CONSTANT_FORMS:
            kept.append(node)
            continue
        content = helper.get_attribute_value(value)
        if value.name == "value":
            tensor = content
        else:
            tensor = numpy_helper.from_array(_plain_constant(value.name, content))
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
    _replace(graph.node, kept)
    names = {tensor.name for tensor in graph.initializer}
    if any(info.name in names for info in graph.input):
        _replace(graph.input, [info for info in graph.input if info.name not in names])
        model.ir_version = max(model.ir_version, 4)


_CONSTANT_FORMS = frozenset({"value", "value_float", "value_floats", "value_int", "value_ints"})


def _plain_constant(form: str, content: object) -> Array:
    import numpy as np

    return np.array(content, dtype=np.float32 if "float" in form else np.int64)


def infer_shapes(model: ModelProto) -> None:
    """Run ONNX shape inference on ``model``, in place; its weights are not copied.

    Shapes that the model states for inner tensors are forgotten first: they may belong to other
    input shapes. Raises ProductFailure where inference refuses the graph.
    """
    import onnx

    graph = model.graph
    for info in graph.value_info:
        info.type.tensor_type.ClearField("shape")
    skeleton = onnx.ModelProto(ir_version=model.ir_version)
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    bare = skeleton.graph
    bare.name = graph.name
    bare.node.extend(graph.node)
    bare.input.extend(graph.input)
    bare.value_info.extend(graph.value_info)
    for output in graph.output:
        bare.output.add().CopyFrom(output)
        bare.output[-1].type.tensor_type.ClearField("shape")
    for tensor in graph.initializer:
        bare.initializer.append(_without_large_data(tensor))
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise ProductFailure(
            f"shape inference refuses the ONNX graph: {error}", next_step="export the model again"
        ) from None
    _replace(graph.value_info, inferred.value_info)
    for output, found in zip(graph.output, inferred.output, strict=True):
        if found.type.tensor_type.HasField("shape"):
            output.CopyFrom(found)


def _without_large_data(tensor: TensorProto) -> TensorProto:
    import math

    import onnx

    if math.prod(tensor.dims) <= _STRIPPED_ELEMENTS and tensor.data_location != tensor.EXTERNAL:
        return tensor
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def fold_constants(model: ModelProto, *, floats: bool) -> None:
    """Infer shapes and fold, in place, until nothing changes.

    With ``floats`` off only what computes shapes (integers and booleans) is folded.
    """
    for _ in range(_MAX_ROUNDS):
        infer_shapes(model)
        if not _fold_once(model, floats=floats):
            return


def _fold_once(model: ModelProto, *, floats: bool) -> bool:
    from onnx import numpy_helper

    graph = model.graph
    constants: Constants = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {info.name for info in graph.output}
    static = _static_shapes(model)
    types = {info.name: info.type.tensor_type.elem_type for info in graph.value_info}
    kept = []
    for node in graph.node:
        if any(name in outputs for name in node.output) or not _foldable(
            node, constants, static, types, floats=floats
        ):
            kept.append(node)
            continue
        values = _evaluate(node, constants, static, model)
        if values is None:
            kept.append(node)
            continue
        for name, value in zip(node.output, values, strict=True):
            if name:
                tensor = numpy_helper.from_array(value, name)
                graph.initializer.append(tensor)
                constants[name] = tensor
    changed = len(kept) != len(graph.node)
    if changed:
        _replace(graph.node, kept)
        drop_unused_constants(model)
    return changed


def drop_unused_constants(model: ModelProto) -> None:
    """Remove initializers that no node (bodies included) and no output uses."""
    used = {info.name for info in model.graph.output}
    pending = list(model.graph.node)
    while pending:
        node = pending.pop()
        used.update(node.input)
        for attribute in node.attribute:
            pending += attribute.g.node
            for body in attribute.graphs:
                pending += body.node
    graph = model.graph
    _replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in used])


def _static_shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    from pytest_qnnctx.build.quantize.graph import shape_of

    graph = model.graph
    result: dict[str, tuple[int, ...]] = {t.name: tuple(t.dims) for t in graph.initializer}
    for info in [*graph.input, *graph.value_info]:
        if info.type.tensor_type.HasField("shape"):
            dims = tuple(dim for dim in shape_of(info) if isinstance(dim, int))
            if len(dims) == len(info.type.tensor_type.shape.dim):
                result[info.name] = dims
    return result


def _foldable(
    node: NodeProto,
    constants: Constants,
    static: dict[str, tuple[int, ...]],
    types: dict[str, int],
    *,
    floats: bool,
) -> bool:
    from onnx import TensorProto

    if node.domain not in ("", "ai.onnx") or node.op_type in _KEEP or not node.input:
        return False
    if node.op_type == "Shape":
        return node.input[0] in static
    if not all(name in constants for name in node.input if name):
        return False
    whole = {TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
    return floats or all(types.get(name) in whole for name in node.output if name)


def _evaluate(
    node: NodeProto,
    constants: Constants,
    static: dict[str, tuple[int, ...]],
    model: ModelProto,
) -> list[Array] | None:
    """The node's outputs, or None where it cannot (or had better not) be computed here."""
    import math

    import numpy as np
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "Shape":
        dims = static[node.input[0]]
        bounds = {a.name: a.i for a in node.attribute}
        return [np.array(dims[bounds.get("start", 0) : bounds.get("end", len(dims))], np.int64)]
    if sum(math.prod(constants[name].dims) for name in node.input if name) > _MAX_ELEMENTS:
        return None
    names = [name for name in dict.fromkeys(node.input) if name]
    small = helper.make_model(
        helper.make_graph(
            [node],
            "fold",
            [helper.make_tensor_value_info(n, constants[n].data_type, None) for n in names],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        ),
        opset_imports=model.opset_import,
    )
    try:
        feeds = {name: numpy_helper.to_array(constants[name]) for name in names}
        values = ReferenceEvaluator(small).run(None, feeds)
    except Exception:  # an op this evaluator lacks: the graph keeps the node, nothing is lost
        return None
    arrays = [np.asarray(value) for value in values]
    if any(a.size > _MAX_ELEMENTS or a.dtype == object for a in arrays):
        return None
    filled = iter(arrays)
    return [next(filled) if name else np.zeros(0) for name in node.output]


def _replace(field: object, items: object) -> None:
    """Give a repeated protobuf field these items."""
    items = list(items)  # type: ignore[call-overload]
    del field[:]  # type: ignore[attr-defined]
    field.extend(items)  # type: ignore[attr-defined]
