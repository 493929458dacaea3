"""The files of ``qnn-net-run``: input lists, raw inputs, and ``Result_<n>/<tensor>.raw``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .exits import DoesNotFit, Usage
from .graph import Graph, Tensor
from .pack import from_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]


@dataclass(frozen=True)
class InputList:
    """``lines`` maps input name to file, one mapping an inference; ``outputs`` to be kept."""

    lines: tuple[dict[str, Path], ...]
    outputs: tuple[Tensor, ...]


def parse_input_list(text: str, graph: Graph) -> InputList:
    """An input list: files in input order or as ``name:=path``; ``#``/``%`` lines name outputs.

    Raises Usage or DoesNotFit with the number of the line at fault.
    """
    lines: list[dict[str, Path]] = []
    kept: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"input list line {number}"
        if line.startswith(("#", "%")):
            if lines:
                raise Usage(f"{where}: outputs must be named before the first inputs")
            kept += line[1:].split()
        elif line.strip():
            lines.append(_parse_line(line, graph, where))
    outputs = {tensor.name: tensor for tensor in graph.outputs}
    unknown = [name for name in kept if name not in outputs]
    if unknown:
        raise Usage(f"the input list names no output of the graph: {', '.join(unknown)}")
    if not lines:
        raise Usage("the input list holds no inputs")
    wanted = [outputs[name] for name in outputs if not kept or name in kept]
    return InputList(tuple(lines), tuple(wanted))


def _parse_line(line: str, graph: Graph, where: str) -> dict[str, Path]:
    names = [tensor.name for tensor in graph.inputs]
    entries = [entry.rpartition(":=") for entry in line.split()]
    named = [bool(colon) for _, colon, _ in entries]
    if len(entries) != len(names):
        raise DoesNotFit(
            f"{where} has {len(entries)} files, the graph {len(names)} inputs ({', '.join(names)})"
        )
    if any(named) and not all(named):
        raise Usage(f"{where} mixes name:=path with bare paths")
    if not any(named):
        return dict(zip(names, (Path(path) for _, _, path in entries)))  # noqa: B905
    given = {name: Path(path) for name, _, path in entries}
    if sorted(given) != sorted(names):
        raise DoesNotFit(
            f"{where} names {', '.join(name for name, _, _ in entries)}; the graph's inputs are "
            f"{', '.join(names)}"
        )
    return given


def check_size(path: Path, tensor: Tensor, *, native: bool) -> None:
    """Raise DoesNotFit unless the file has exactly the bytes that ``tensor`` needs."""
    try:
        got = path.stat().st_size
    except OSError as error:
        raise DoesNotFit(f"input file {path}: {error.strerror}") from error
    expected = tensor.native_bytes if native else tensor.size * 4
    if got != expected:
        form = "native" if native else "float32"
        other = tensor.size * 4 if native else tensor.native_bytes
        flag = "without" if native else "with"
        hint = f" (it fits {flag} --use_native_input_files)" if got == other else ""
        raise DoesNotFit(
            f"input file {path}: expected {expected} bytes for {tensor} as {form}, got {got}{hint}"
        )


def read_input(path: Path, tensor: Tensor, *, native: bool) -> Array:
    """Native values from a file of native values or of float32. Raises DoesNotFit."""
    import numpy as np

    from .quantize import encode

    check_size(path, tensor, native=native)
    data = path.read_bytes()
    try:
        if native:
            return encode(tensor, from_bytes(tensor, data))
        return encode(tensor, np.frombuffer(data, "<f4").reshape(tensor.shape))
    except DoesNotFit as error:
        raise DoesNotFit(f"{error} in file {path}") from error


def file_stem(name: str) -> str:
    """A tensor's name as the vendor's tool makes it a file's."""
    return re.sub(r"[:/]", "_", name)


def check_stems(tensors: tuple[Tensor, ...]) -> None:
    """Raise Usage where two tensors would be written to one file."""
    stems: dict[str, str] = {}
    for tensor in tensors:
        other = stems.setdefault(file_stem(tensor.name), tensor.name)
        if other != tensor.name:
            raise Usage(
                f"outputs '{other}' and '{tensor.name}' would both be written to "
                f"{file_stem(tensor.name)}.raw; keep one of them with a % line in the input list"
            )


def write_result(
    directory: Path,
    index: int,
    tensors: tuple[Tensor, ...],
    values: Mapping[str, Array],
    *,
    native: bool,
) -> None:
    """Write ``Result_<index>``: float32 ``.raw`` files, or ``_native.raw``."""
    from .quantize import decode

    result = directory / f"Result_{index}"
    result.mkdir()
    for tensor in tensors:
        array = values[tensor.name]
        name = file_stem(tensor.name) + ("_native.raw" if native else ".raw")
        (result / name).write_bytes((array if native else decode(tensor, array)).tobytes())


def clear_results(directory: Path) -> None:
    """Remove what an earlier run left, so that it cannot be read as this one's."""
    for path in directory.glob("*"):
        if re.fullmatch(r"Result_\d+|qnn-profiling-data_\d+.*", path.name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
