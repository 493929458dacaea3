"""The graph to run: its name, inputs and outputs, read from a JSON or from the binary."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from .exits import Usage

#: Data type of a graph's tensor -> how it lies in memory, as numpy writes it (little-endian).
STORAGE = {
    "float32": "<f4", "float16": "<f2", "float64": "<f8",
    "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
    "uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
    "sfixed8": "|i1", "sfixed16": "<i2", "sfixed32": "<i4",
    "ufixed8": "|u1", "ufixed16": "<u2", "ufixed32": "<u4",
    "bool8": "|b1",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A graph input or output; real = (q + offset) * scale where it is quantized per tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    offset: int | None = None

    def __str__(self) -> str:
        return f"'{self.name}' ({self.dtype} {'x'.join(map(str, self.shape)) or 'scalar'})"

    @property
    def storage(self) -> str:
        """The numpy type of its native values."""
        return STORAGE[self.dtype]

    @property
    def size(self) -> int:
        """Its number of elements."""
        return prod(self.shape)

    @property
    def native_bytes(self) -> int:
        """The bytes of its native values."""
        return self.size * int(self.storage[-1])

    @property
    def quantized(self) -> bool:
        """Whether its values are fixed-point numbers."""
        return "fixed" in self.dtype


@dataclass(frozen=True)
class Graph:
    """One graph of a context binary."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def to_json(self) -> dict[str, Any]:
        """The form of an ``--io`` file."""
        return asdict(self)


def graph_of(data: Any, wanted: str | None, where: str) -> Graph:
    """The graph named ``wanted`` (None: the only one) in ``data``.

    ``data`` is one graph (``name``, ``inputs``, ``outputs``) or a dictionary with a list of
    ``graphs``, as ``qnnctx inspect --json`` prints it. Raises Usage, starting with ``where``.
    """
    try:
        graphs = [_graph(each) for each in data.get("graphs", [data])]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Usage(f"{where}: not a description of a graph ({error!r})") from error
    names = ", ".join(graph.name for graph in graphs)
    if wanted is None:
        if len(graphs) != 1:
            raise Usage(f"{where} holds {len(graphs)} graphs ({names}): name one with --graph")
        return graphs[0]
    for graph in graphs:
        if graph.name == wanted:
            return graph
    raise Usage(f"{where} holds no graph '{wanted}', but: {names or 'none'}")


def read_graph(io: Path | None, binary: Path, wanted: str | None) -> Graph:
    """The graph from the ``--io`` file or, without one, from the binary's own metadata.

    Raises Usage where neither can be read.
    """
    if io is not None:
        try:
            data = json.loads(io.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Usage(f"--io {io}: {error}") from error
        return graph_of(data, wanted, str(io))
    try:
        from pytest_qnnctx.binary.reader import read_binary
    except ImportError as error:
        raise Usage(
            "without --io the binary's metadata must be read by pytest_qnnctx, which is not "
            "installed here; write the --io file with `qnnctx inspect --json`"
        ) from error
    try:
        info = read_binary(binary)
    except Exception as error:  # Its errors' types are not known here: this package stands alone.
        raise Usage(" ".join(str(error).split())) from error
    return graph_of(info.to_json(), wanted, str(binary))


def _graph(data: Any) -> Graph:
    graph = Graph(
        str(data["name"]),
        tuple(_tensor(tensor) for tensor in data["inputs"]),
        tuple(_tensor(tensor) for tensor in data["outputs"]),
    )
    names = [tensor.name for tensor in (*graph.inputs, *graph.outputs)]
    if len(set(names)) != len(names):
        raise ValueError(f"a tensor name occurs twice in graph '{graph.name}'")
    if not graph.outputs:
        raise ValueError(f"graph '{graph.name}' has no outputs")
    return graph


def _tensor(data: Any) -> Tensor:
    tensor = Tensor(
        str(data["name"]),
        str(data["dtype"]),
        tuple(int(size) for size in data["shape"]),
        None if data.get("scale") is None else float(data["scale"]),
        None if data.get("offset") is None else int(data["offset"]),
    )
    if tensor.dtype not in STORAGE:
        raise ValueError(f"tensor '{tensor.name}' has a type that cannot be run: {tensor.dtype}")
    if any(size <= 0 for size in tensor.shape):
        raise ValueError(f"tensor '{tensor.name}' has no fixed shape: {list(tensor.shape)}")
    return tensor
