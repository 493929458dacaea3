"""The stand-in's DLC: a zip, as the real one is, with an ONNX instead of the vendor's graph."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto


#: TensorProto.COMPLEX128; what follows are bfloat16, 8-bit floats and 4-bit integers.
_LAST_OF_NUMPY = 15


@dataclass(frozen=True)
class Note:
    """Which stage wrote it, and how.

    ``graph`` is the graph's name; ``overrides`` the encodings; ``narrow`` whether it has tensors of
    element types that numpy lacks.
    """

    stage: str
    graph: str
    version: str
    converter_command: str = ""
    quantizer_command: str = "N/A"
    overrides: dict[str, Any] = field(default_factory=dict)
    narrow: bool = False


@dataclass(frozen=True)
class Dlc:
    """A DLC that was read."""

    onnx: bytes
    note: Note

    def model(self) -> ModelProto:
        import onnx

        return onnx.load_from_string(self.onnx)


class NotADlc(Exception):
    """The file is not one."""


def write_dlc(path: Path, model: ModelProto, note: Note) -> None:
    """Write it, whole or not at all."""
    onnx = model.SerializeToString()
    note = replace(note, narrow=any(t.data_type > _LAST_OF_NUMPY for t in model.graph.initializer))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (
            ("model.onnx", onnx),
            ("dlc.metadata", json.dumps(asdict(note)).encode()),
        ):
            # A fixed date: the same input gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".part")
    new.write_bytes(buffer.getvalue())
    new.replace(path)


def read_dlc(path: Path) -> Dlc:
    """Read it. Raises NotADlc, OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            return Dlc(archive.read("model.onnx"), Note(**json.loads(archive.read("dlc.metadata"))))
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise NotADlc(f"{path} is not a DLC") from error
