"""The data that a test gives: normalised and checked against the compiled graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.binary.info import BinaryInfo, GraphInfo
from pytest_qnnctx.errors import UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array


def the_graph(binary: BinaryInfo) -> GraphInfo:
    """The binary's only graph. Raises UsageError where it holds none or several."""
    if len(binary.graphs) == 1:
        return binary.graphs[0]
    if not binary.graphs:
        why = binary.unknown.get("graphs", "it holds no graph")
        raise UsageError(f"the binary's inputs are not known: {why}")
    names = ", ".join(graph.name for graph in binary.graphs)
    raise UsageError(
        f"the binary holds {len(binary.graphs)} graphs ({names}) and which one to run is not said",
        next_step="build one binary a graph",
    )


def as_sample(inputs: Any, binary: BinaryInfo, where: str) -> dict[str, Array]:
    """``inputs`` as ``{input name: array}`` in the graph's shapes.

    A bare array stands for a graph's only input; an array that lacks the leading 1 of the batch
    gets it. Raises UsageError that starts with ``where``.
    """
    import numpy as np

    graph = the_graph(binary)
    wanted = {tensor.name: tensor for tensor in graph.inputs}
    described = ", ".join(f"{t.name} {list(t.shape)}" for t in graph.inputs)
    if not isinstance(inputs, Mapping):
        if len(wanted) != 1:
            raise UsageError(
                f"{where}: the graph has {len(wanted)} inputs ({described}), so inputs must be "
                "given by name"
            )
        inputs = {next(iter(wanted)): inputs}
    if set(inputs) != set(wanted):
        got = ", ".join(map(str, inputs)) or "none"
        raise UsageError(f"{where}: the graph's inputs are {described}, but these came: {got}")
    sample = {}
    for name, tensor in wanted.items():
        try:
            array = np.array(inputs[name])  # a copy: a generator may reuse its buffer
        except (ValueError, TypeError) as error:
            raise UsageError(f"{where}: input '{name}' is no array: {error}") from error
        if array.dtype.kind not in "biuf":
            raise UsageError(f"{where}: input '{name}' is no array of numbers ({array.dtype})")
        if (1, *array.shape) == tensor.shape:
            array = array[None]
        if array.shape != tensor.shape:
            raise UsageError(
                f"{where}: input '{name}' has shape {list(array.shape)}, the graph wants "
                f"{list(tensor.shape)}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UsageError(f"{where}: input '{name}' holds NaN or infinity")
        sample[name] = array
    return sample


def read_dataset(
    pairs: Iterable[Any], binary: BinaryInfo
) -> tuple[list[dict[str, Array]], list[Any]]:
    """Inputs and targets of an iterable of ``(inputs, target)`` pairs, read once.

    Raises UsageError that names the first pair that is no good, or says that there are none.
    """
    samples, targets = [], []
    if not isinstance(pairs, Iterable):
        raise UsageError(f"the dataset is a {type(pairs).__name__}, no iterable of pairs")
    for index, pair in enumerate(pairs):
        where = f"dataset item {index}"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"{where} is no pair of (inputs, target)")
        samples.append(as_sample(pair[0], binary, where))
        targets.append(deepcopy(pair[1]))
    if not samples:
        raise UsageError("the dataset is empty: nothing was judged on it")
    return samples, targets
