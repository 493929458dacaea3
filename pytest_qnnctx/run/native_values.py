"""Samples as the native values that a graph takes, and its native outputs as float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pytest_qnnctx.binary.info import BinaryInfo, GraphInfo
from pytest_qnnctx.errors import ProductFailure
from pytest_qnnctx.netrun.exits import DoesNotFit, Usage
from pytest_qnnctx.netrun.graph import Graph, graph_of

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array, Sample


def graph_to_run(binary: BinaryInfo, samples: Sequence[Sample], name: str) -> GraphInfo:
    """The binary's graph that ``samples`` are for; ``name`` is the binary's, for messages.

    Where it holds several graphs, it is the one whose inputs are named as the first sample's; with
    no samples any will do, since loading loads them all. Raises ProductFailure.
    """
    if not binary.graphs:
        why = binary.unknown.get("graphs", "it says of itself that it holds none")
        raise ProductFailure(
            f"{name} cannot be run: its graphs are not known ({why})",
            next_step="build it again, or install onnxruntime-qnn so that it can be read",
        )
    if len(binary.graphs) == 1 or not samples:
        return binary.graphs[0]
    wanted = set(samples[0])
    fitting = [g for g in binary.graphs if {tensor.name for tensor in g.inputs} == wanted]
    if len(fitting) != 1:
        names = ", ".join(graph.name for graph in binary.graphs)
        raise ProductFailure(
            f"{name} holds {len(binary.graphs)} graphs ({names}), and {len(fitting)} of them take "
            f"the inputs {', '.join(sorted(wanted))}",
            next_step="build one binary a graph",
        )
    return fitting[0]


def runnable(graph: GraphInfo, name: str) -> Graph:
    """``graph`` as netrun describes it.

    Raises ProductFailure where a tensor has a type or shape that cannot be fed from a host.
    """
    try:
        return graph_of(asdict(graph), None, f"{name}, graph {graph.name}")
    except Usage as error:
        raise ProductFailure(
            f"{error}: it cannot be run",
            next_step="give the model inputs and outputs of 8, 16 or 32 bits and fixed shapes",
        ) from error


def to_native(graph: Graph, sample: Sample, where: str) -> dict[str, Array]:
    """The native values of one sample, in the graph's order.

    Floats are real values and are quantized here; arrays of the graph's own integer type are
    codes. Raises ProductFailure that starts with ``where`` and names the input that does not fit.
    """
    import numpy as np

    from pytest_qnnctx.netrun.quantize import encode

    names = [tensor.name for tensor in graph.inputs]
    if sorted(sample) != sorted(names):
        raise ProductFailure(
            f"{where}: the graph's inputs are {', '.join(names)}, but it got "
            f"{', '.join(sorted(sample)) or 'none'}",
            next_step="name the inputs as the model does",
        )
    try:
        return {
            tensor.name: encode(tensor, np.asarray(sample[tensor.name])) for tensor in graph.inputs
        }
    except DoesNotFit as error:
        raise ProductFailure(
            f"{where}: {error}", next_step="feed what the compiled graph takes"
        ) from error


def to_real(graph: Graph, native: dict[str, Array]) -> dict[str, Array]:
    """Float32 values of all outputs. Raises ProductFailure where an output has no scale."""
    from pytest_qnnctx.netrun.quantize import decode

    try:
        return {tensor.name: decode(tensor, native[tensor.name]) for tensor in graph.outputs}
    except DoesNotFit as error:
        raise ProductFailure(
            f"graph {graph.name}: {error}",
            next_step="quantize the model's outputs per tensor",
        ) from error
