"""The last changes to an ONNX graph before the compiler sees it, and what can be read off it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
#: Protobuf's limit is 2 GiB; beyond this (bytes) weights go to a file beside the ONNX.
LARGEST_ONNX_BYTES = 1_900_000_000
_FLOAT_TYPES = (1, 10, 11, 16)  # TensorProto FLOAT, FLOAT16, DOUBLE, BFLOAT16


def write_for_compiler(source: Path, destination: Path) -> frozenset[str]:
    """Write ``source`` as the compiler shall see it; returns the names of nodes that are float.

    Every node gets a name, so that a refusal can name it, and a graph input or output that is
    quantized becomes an integer tensor of the same name: the context then takes and gives quantized
    data, as binaries made by the SDK do, and no conversion is spent on the NPU for it.
    """
    import onnx

    model = onnx.load(str(source))
    name_nodes(model)
    floating = float_nodes(model)
    quantize_interface(model)
    big = model.ByteSize() > LARGEST_ONNX_BYTES
    onnx.save(
        model,
        str(destination),
        save_as_external_data=big,
        location=destination.name + ".data" if big else None,
    )
    return floating


def name_nodes(model: onnx.ModelProto) -> None:
    """Give each unnamed node a name of its own: ``Conv_3`` for the fourth node, a Conv."""
    taken = {node.name for node in model.graph.node}
    for index, node in enumerate(model.graph.node):
        if not node.name:
            name = f"{node.op_type}_{index}"
            while name in taken:
                name += "_"
            node.name = name
            taken.add(name)


def float_nodes(model: onnx.ModelProto) -> frozenset[str]:
    """Names of nodes that compute in floating point.

    A node of a QDQ graph does not when all float tensors that it reads come from a
    DequantizeLinear (or from another such node that it is fused with: Relu and Clip behind it) and
    one of its outputs is quantized again, directly or behind such a fused node.
    """
    graph = model.graph
    producer = {out: node for node in graph.node for out in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    integers = _integer_tensors(model)
    constants = {init.name for init in graph.initializer}

    def is_fused(node: onnx.NodeProto) -> bool:
        return node.op_type in ("Relu", "Clip")

    def comes_quantized(name: str) -> bool:
        source = producer.get(name)
        if not name or name in integers or name in constants:
            return True
        if source is None:
            return False
        if source.op_type in (_DEQUANTIZE, "Constant"):
            return True
        reader = readers.get(name, [])
        return len(reader) == 1 and is_fused(reader[0]) and all(map(comes_quantized, source.input))

    def goes_quantized(name: str) -> bool:
        after = readers.get(name, [])
        return bool(after) and all(
            node.op_type == _QUANTIZE
            or (is_fused(node) and all(goes_quantized(out) for out in node.output))
            for node in after
        )

    found = set()
    for node in graph.node:
        if node.op_type in (_QUANTIZE, _DEQUANTIZE, "Constant"):
            continue
        outputs = [out for out in node.output if out and out not in integers]
        if not outputs:
            continue
        if not (
            all(map(comes_quantized, node.input)) and all(goes_quantized(out) for out in outputs)
        ):
            found.add(node.name)
    return frozenset(found)


def _integer_tensors(model: onnx.ModelProto) -> frozenset[str]:
    graph = model.graph
    known = {
        info.name: info.type.tensor_type.elem_type
        for info in (*graph.input, *graph.output, *graph.value_info)
    }
    known.update({init.name: init.data_type for init in graph.initializer})
    return frozenset(name for name, kind in known.items() if kind and kind not in _FLOAT_TYPES)


def quantize_interface(model: onnx.ModelProto) -> None:
    """Turn quantized graph inputs and outputs into integer tensors of the same names, in place."""
    graph = model.graph
    types = {init.name: init.data_type for init in graph.initializer}
    _quantize_inputs(graph, types)
    _quantize_outputs(graph, types)


def _zero_point_type(node: onnx.NodeProto, types: dict[str, int]) -> int | None:
    return types.get(node.input[2]) if len(node.input) > 2 else None


def _quantize_inputs(graph: onnx.GraphProto, types: dict[str, int]) -> None:
    constants = {init.name for init in graph.initializer}
    for info in graph.input:
        if info.name in constants:
            continue
        readers = [node for node in graph.node if info.name in node.input]
        if len(readers) != 1 or readers[0].op_type != _QUANTIZE:
            continue
        kind = _zero_point_type(readers[0], types)
        inner = readers[0].output[0]
        if kind is None or any(inner == out.name for out in graph.output):
            continue
        info.type.tensor_type.elem_type = kind
        graph.node.remove(readers[0])
        _rename(graph, inner, info.name)


def _quantize_outputs(graph: onnx.GraphProto, types: dict[str, int]) -> None:
    uses = Counter(name for node in graph.node for name in node.input)
    for info in graph.output:
        makers = [node for node in graph.node if info.name in node.output]
        if len(makers) != 1 or makers[0].op_type != _DEQUANTIZE or uses[info.name]:
            continue
        kind = _zero_point_type(makers[0], types)
        inner = makers[0].input[0]
        made = any(inner in node.output for node in graph.node)
        outside = {i.name for i in graph.input} | {o.name for o in graph.output}
        if kind is None or not made or inner in outside:
            continue
        info.type.tensor_type.elem_type = kind
        graph.node.remove(makers[0])
        _rename(graph, inner, info.name)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for index, info in reversed(list(enumerate(graph.value_info))):
        if info.name in (old, new):
            del graph.value_info[index]


def quantized_names(path: Path) -> dict[str, tuple[str, ...]]:
    """Tensor -> the names of its quantized and de-quantized forms in the QDQ graph at ``path``."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    links: dict[str, set[str]] = {}
    for node in graph.node:
        if node.op_type in (_QUANTIZE, _DEQUANTIZE):
            # The compiler names some quantized tensors by the node that makes them.
            for one, other in ((node.input[0], node.output[0]), (node.output[0], node.name)):
                if one and other:
                    links.setdefault(one, set()).add(other)
                    links.setdefault(other, set()).add(one)
    found = {}
    for name in links:
        seen, todo = {name}, [name]
        while todo:
            fresh = links.get(todo.pop(), set()) - seen
            seen |= fresh
            todo += fresh
        found[name] = tuple(sorted(seen - {name}))
    return found
