"""A pack: many samples' native tensors in one file, so that a data set travels as one copy.

One line of JSON (``kind``, ``samples``, ``graph``), then the samples one after another, each the
values of the graph's inputs (or outputs) in the graph's order. It can be read and written sample
by sample, so a large data set needs no memory, and its size gives away any truncation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from .exits import DoesNotFit, Usage
from .graph import Graph, Tensor, graph_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_FORMAT = "qnnctx-pack-1"
_MAX_HEADER = 16 * 1024 * 1024
INPUTS, OUTPUTS = "inputs", "outputs"


def tensors_of(graph: Graph, kind: str) -> tuple[Tensor, ...]:
    """The graph's inputs or outputs."""
    return graph.inputs if kind == INPUTS else graph.outputs


class PackWriter:
    """Writes ``path`` whole or not at all: a context manager that renames it at the end."""

    def __init__(self, path: Path, kind: str, graph: Graph, samples: int) -> None:
        self._path, self._tensors, self._left = path, tensors_of(graph, kind), samples
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        head = {"format": _FORMAT, "kind": kind, "samples": samples, "graph": graph.to_json()}
        self._file = self._partial.open("wb")
        self._file.write(json.dumps(head).encode() + b"\n")

    def add(self, values: Mapping[str, Array]) -> None:
        """Append one sample of native values, by tensor name."""
        for tensor in self._tensors:
            array = values[tensor.name]
            if array.dtype.newbyteorder("<").str != tensor.storage or array.shape != tensor.shape:
                raise DoesNotFit(f"{tensor} cannot hold {array.dtype} {list(array.shape)}")
            self._file.write(array.tobytes())
        self._left -= 1

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if error is None and self._left == 0:
            self._partial.replace(self._path)
            return
        self._partial.unlink(missing_ok=True)
        if error is None:
            raise ValueError(f"{self._path}: {self._left} samples were announced but not written")


def read_head(path: Path, kind: str) -> tuple[Graph, int, int]:
    """The graph, the number of samples, and where they begin. Raises Usage for another file."""
    try:
        with path.open("rb") as file:
            line = file.readline(_MAX_HEADER)
        head = json.loads(line)
        if head["format"] != _FORMAT or head["kind"] != kind or not line.endswith(b"\n"):
            raise ValueError(f"it holds no {kind}")
        graph, samples = graph_of(head["graph"], None, str(path)), int(head["samples"])
        size = path.stat().st_size
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Usage(f"{path} is not a pack of {kind}: {error}") from error
    record = sum(tensor.native_bytes for tensor in tensors_of(graph, kind))
    expected = len(line) + samples * record
    if samples < 0 or size != expected:
        raise Usage(f"{path} is damaged: {size} bytes, expected {expected}")
    return graph, samples, len(line)


def read_pack(path: Path, kind: str) -> Iterator[dict[str, Array]]:
    """The samples in order, as native values by tensor name. Raises Usage for a damaged file."""
    graph, samples, start = read_head(path, kind)
    tensors = tensors_of(graph, kind)
    with path.open("rb") as file:
        file.seek(start)
        for _ in range(samples):
            yield _read_sample(file, tensors)


def _read_sample(file: IO[bytes], tensors: Sequence[Tensor]) -> dict[str, Array]:
    return {tensor.name: from_bytes(tensor, file.read(tensor.native_bytes)) for tensor in tensors}


def from_bytes(tensor: Tensor, data: bytes) -> Array:
    """Native values in the tensor's shape. Raises DoesNotFit for a bool that is neither 0 nor 1."""
    import numpy as np

    if tensor.dtype == "bool8" and data and max(data) > 1:
        raise DoesNotFit(f"{tensor} got a byte that is neither 0 nor 1")
    return np.frombuffer(data, np.dtype(tensor.storage)).reshape(tensor.shape)
