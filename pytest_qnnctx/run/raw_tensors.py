"""The files that ``qnn-net-run`` reads and writes: float32 ``.raw`` inputs, and ``Result_<n>``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.binary.info import GraphInfo
from pytest_qnnctx.errors import InfrastructureError, ProductFailure
from pytest_qnnctx.netrun.exits import DoesNotFit, Usage
from pytest_qnnctx.netrun.files import check_stems, file_stem
from pytest_qnnctx.run.native_values import runnable, to_native, to_real

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array, Sample

LIST_NAME = "input_list.txt"
_AGAIN = "remove the output directory on the board and run again"


def write_inputs(
    directory: Path, graph: GraphInfo, samples: Sequence[Sample], remote: str
) -> list[Path]:
    """Write each sample's inputs as float32 files, and the input list; returns all files.

    ``directory`` must be empty. ``remote`` is where the files will lie on the board: the list
    names them there, without spaces, as ``name:=path``. Values are real ones, whatever the graph's
    type; codes of the graph's own integer type are turned into them. Raises ProductFailure where
    a sample does not fit the graph, or a name or path cannot be written in a list.
    """
    import numpy as np

    from pytest_qnnctx.netrun.quantize import decode

    described = runnable(graph, graph.name)
    for text in (remote, *(tensor.name for tensor in graph.inputs)):
        if re.search(r"\s|:=", text):
            raise ProductFailure(
                f"graph {graph.name}: '{text}' cannot be written in an input list",
                next_step="use names and a staging directory without blanks and without ':='",
            )
    directory.mkdir(parents=True, exist_ok=True)
    files, lines = [], []
    for index, sample in enumerate(samples):
        native = to_native(described, sample, f"graph {graph.name}, sample {index}")
        entries = []
        for place, tensor in enumerate(described.inputs):
            given = np.asarray(sample[tensor.name])
            # Floats are left to the runtime's own quantizing; the look above only checked them.
            try:
                real = given if given.dtype.kind == "f" else decode(tensor, native[tensor.name])
            except DoesNotFit as error:
                raise ProductFailure(f"graph {graph.name}, sample {index}: {error}") from error
            path = directory / f"{index}_{place}.raw"
            path.write_bytes(np.ascontiguousarray(real, "<f4").tobytes())
            files.append(path)
            entries.append(f"{tensor.name}:={posixpath.join(remote, path.name)}")
        lines.append(" ".join(entries))
    listed = directory / LIST_NAME
    listed.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [*files, listed]


def read_outputs(
    directory: Path,
    graph: GraphInfo,
    samples: int,
    *,
    native: bool = False,
    newer_than: float | None = None,
) -> tuple[dict[str, Array], ...]:
    """``Result_0`` .. ``Result_<samples - 1>`` as float32 arrays in the graph's shapes.

    ``native``: the files hold native values (``_native.raw``). ``newer_than`` (seconds since the
    epoch, by the clock of the files) refuses what was written before. Raises InfrastructureError
    that names a file which is missing, of another size, too old, or not of this run.
    """
    described = runnable(graph, graph.name)
    try:
        check_stems(described.outputs)
    except Usage as error:
        raise ProductFailure(
            f"graph {graph.name}: {error}", next_step="rename one of the outputs"
        ) from error
    wanted = {f"Result_{index}" for index in range(samples)}
    found = {path.name for path in directory.glob("Result_*")}
    if found != wanted:
        odd = sorted(found ^ wanted, key=_by_number)
        what = "are missing" if found < wanted else "are missing or not of this run"
        raise InfrastructureError(
            f"{directory}: {samples} results were expected; {', '.join(odd[:5])} {what}",
            next_step=_AGAIN,
        )
    return tuple(
        _read_result(directory / f"Result_{index}", graph, native, newer_than)
        for index in range(samples)
    )


def _read_result(
    directory: Path, graph: GraphInfo, native: bool, newer_than: float | None
) -> dict[str, Array]:
    import numpy as np

    described = runnable(graph, graph.name)
    suffix = "_native.raw" if native else ".raw"
    files = {file_stem(tensor.name) + suffix: tensor for tensor in described.outputs}
    found = {path.name for path in directory.iterdir()}
    for name in sorted(found ^ set(files)):
        what = "is missing" if name in files else "is no output of the graph"
        raise InfrastructureError(f"{directory / name} {what}", next_step=_AGAIN)
    values: dict[str, Array] = {}
    for name, tensor in files.items():
        path = directory / name
        state = path.stat()
        expected = tensor.native_bytes if native else tensor.size * 4
        if state.st_size != expected:
            raise InfrastructureError(
                f"{path} has {state.st_size} bytes, expected {expected} for {tensor}",
                next_step=_AGAIN,
            )
        if newer_than is not None and state.st_mtime < newer_than:
            raise InfrastructureError(f"{path} was written before this run began", next_step=_AGAIN)
        kind = tensor.storage if native else "<f4"
        values[tensor.name] = np.frombuffer(path.read_bytes(), kind).reshape(tensor.shape)
    return to_real(described, values) if native else values


def _by_number(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", name)
    return int(digits or 0), name
