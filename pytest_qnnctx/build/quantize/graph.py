"""A light, read-only view of an ONNX graph: who makes and who uses which tensor, and its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import ProductFailure

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

#: ONNX element types (TensorProto.DataType) that an HTP without float must see quantized.
FLOAT = 1
FLOAT_TYPES = frozenset({FLOAT, 10, 11, 16})  # float32, float16, double, bfloat16

Shape = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Node:
    """One node. ``attributes`` holds numbers, texts and lists of them; no tensors, no graphs."""

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Its name, or what it makes where it has none."""
        return self.name or f"{self.op} -> {', '.join(self.outputs)}"


@dataclass(frozen=True)
class Graph:
    """A graph. ``types`` maps tensors to their ONNX element type and ``shapes`` to their
    dimensions, where known; ``constants`` maps each initializer to its dimensions.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, tuple[int, ...]]
    types: Mapping[str, int]
    shapes: Mapping[str, Shape]

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """Tensor -> the node that makes it."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[tuple[Node, int], ...]]:
        """Tensor -> (node, input position) of each use, in graph order."""
        uses: dict[str, list[tuple[Node, int]]] = {}
        for node in self.nodes:
            for position, name in enumerate(node.inputs):
                if name:
                    uses.setdefault(name, []).append((node, position))
        return {name: tuple(users) for name, users in uses.items()}

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor: inputs, constants, then what the nodes make, each once."""
        names = [*self.inputs, *self.constants, *self.producers]
        return tuple(dict.fromkeys(names))

    def is_float(self, tensor: str) -> bool:
        """Whether it is of a float type. A tensor of unknown type counts as one."""
        return self.types.get(tensor, FLOAT) in FLOAT_TYPES

    def only_consumer(self, tensor: str) -> Node | None:
        """The one node that uses it, or None where several do or it is a graph output."""
        users = self.consumers.get(tensor, ())
        return users[0][0] if len(users) == 1 and tensor not in self.outputs else None


def view(model: ModelProto) -> Graph:
    """The view of ``model``'s main graph; types and shapes as the model states them.

    Raises ProductFailure where a node uses a tensor that nothing makes.
    """
    from onnx import helper

    graph = model.graph
    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    shapes: dict[str, Shape] = dict(constants)
    for info in [*graph.input, *graph.output, *graph.value_info]:
        tensor_type = info.type.tensor_type
        if tensor_type.elem_type:
            types.setdefault(info.name, tensor_type.elem_type)
        if tensor_type.HasField("shape"):
            shapes.setdefault(info.name, shape_of(info))
    nodes = tuple(
        Node(
            name=node.name,
            op=node.op_type,
            domain="" if node.domain == "ai.onnx" else node.domain,
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attributes={
                a.name: helper.get_attribute_value(a)
                for a in node.attribute
                if a.type in _PLAIN_ATTRIBUTES
            },
        )
        for node in graph.node
    )
    result = Graph(
        nodes=nodes,
        inputs=tuple(i.name for i in graph.input if i.name not in constants),
        outputs=tuple(o.name for o in graph.output),
        constants=constants,
        types=types,
        shapes=shapes,
    )
    _check_wiring(result)
    return result


#: AttributeProto types: FLOAT, INT, STRING, FLOATS, INTS, STRINGS.
_PLAIN_ATTRIBUTES = frozenset({1, 2, 3, 6, 7, 8})


def shape_of(info: ValueInfoProto) -> Shape:
    """Dimensions of ``info``: a number, a symbol, or None where nothing is stated."""
    dims: list[int | str | None] = []
    for dim in info.type.tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(dim.dim_value if dim.dim_value > 0 else None)
        else:
            dims.append(dim.dim_param or None)
    return tuple(dims)


def _check_wiring(graph: Graph) -> None:
    known = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in known:
                raise ProductFailure(
                    f"the ONNX graph is broken: node {node.label!r} uses tensor {name!r}, "
                    "which nothing before it makes",
                    next_step="export the model again",
                )
        known.update(node.outputs)
    missing = [name for name in graph.outputs if name not in known]
    if missing:
        raise ProductFailure(
            f"the ONNX graph is broken: nothing makes its output {missing[0]!r}",
            next_step="export the model again",
        )
