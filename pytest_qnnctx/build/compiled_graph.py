"""The graph that was handed to the HTP compiler, as the vendor's own JSON dump tells it.

ONNX Runtime's QNN provider writes it with ``dump_json_qnn_graph=1`` (measured with QNN 2.47 and
2.51): ``graph.nodes`` by name with ``type``, ``input_names``, ``output_names``; ``graph.tensors``
by name with ``data_type`` (QNN's number), ``type`` (0 graph input, 1 graph output, 3 native,
4 static) and ``quant_params``. It is evidence of what was compiled, which the ONNX is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FLOAT_TYPES = {0x0216, 0x0232, 0x0264}
_GRAPH_INPUT, _GRAPH_OUTPUT = 0, 1
_PER_TENSOR, _PER_AXIS = 0, 1
_BOUNDARY_OPS = {"Quantize": _GRAPH_INPUT, "Dequantize": _GRAPH_OUTPUT}
#: The provider appends this to the name of a node or tensor that it made from an ONNX one.
_TOKEN = re.compile(r"_token_\d+(?=$|_)")


@dataclass(frozen=True)
class CompiledTensor:
    """``scale``/``offset`` are None unless quantized per tensor; ``channels`` set if per axis."""

    name: str
    dtype: int
    role: int
    scale: float | None = None
    offset: int | None = None
    channels: int | None = None


@dataclass(frozen=True)
class CompiledNode:
    """One op, with the names of the tensors it reads and writes."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class CompiledGraph:
    """Nodes in name order, tensors by name."""

    nodes: tuple[CompiledNode, ...]
    tensors: Mapping[str, CompiledTensor]


def read_compiled_graphs(directory: Path) -> tuple[CompiledGraph, ...]:
    """All graphs dumped to ``directory``; empty where there is none that can be understood."""
    graphs = []
    for path in sorted(directory.glob("*.json")):
        try:
            data = json.loads(path.read_text(errors="replace"))
            if "graph" in data:
                graphs.append(parse_compiled_graph(data))
        except (ValueError, KeyError, TypeError, AttributeError):
            return ()
    return tuple(graphs)


def parse_compiled_graph(data: Mapping[str, Any]) -> CompiledGraph:
    """Read the dump. Raises KeyError, TypeError or AttributeError where its form is another."""
    graph = data["graph"]
    nodes = tuple(
        CompiledNode(name, str(n["type"]), tuple(n["input_names"]), tuple(n["output_names"]))
        for name, n in graph["nodes"].items()
    )
    return CompiledGraph(nodes, {n: _tensor(n, t) for n, t in graph["tensors"].items()})


def _tensor(name: str, raw: Mapping[str, Any]) -> CompiledTensor:
    dtype, role = int(raw["data_type"]), int(raw["type"])
    params = raw.get("quant_params", {})
    pair = params.get("scale_offset", {})
    if params.get("definition") == 1 and params.get("encoding") == _PER_TENSOR:
        return CompiledTensor(name, dtype, role, float(pair["scale"]), int(pair["offset"]))
    if params.get("definition") == 1 and params.get("encoding") == _PER_AXIS:
        # The dump reads the union's first words as scale and offset: "offset" is the axis count.
        return CompiledTensor(name, dtype, role, channels=int(pair["offset"]))
    return CompiledTensor(name, dtype, role)


def plain_name(name: str) -> str:
    """The ONNX node's name behind a compiled one: ``conv1_token_1`` -> ``conv1``."""
    return _TOKEN.sub("", name)


def float_ops(graphs: Iterable[CompiledGraph]) -> tuple[str, ...]:
    """``name (type)`` of every op that computes in floating point, sorted.

    A Quantize that reads a graph input, or a Dequantize that writes a graph output, is the graph's
    interface and no floating-point op.
    """
    found = set()
    for graph in graphs:
        for node in graph.nodes:
            touched = [
                graph.tensors[t] for t in (*node.inputs, *node.outputs) if t in graph.tensors
            ]
            floats = [t for t in touched if t.dtype in _FLOAT_TYPES]
            boundary = _BOUNDARY_OPS.get(node.op)
            if floats and not (boundary is not None and all(t.role == boundary for t in floats)):
                found.add(f"{plain_name(node.name)} ({node.op})")
    return tuple(sorted(found))
