"""A stand-in for the cross-compiled model library of the classic route.

The file begins with a true ELF header for the board's machine; behind it comes a zip with the ONNX.
Nothing can execute it, but everything that looks at what it is for is told the truth.
"""

from __future__ import annotations

import io
import json
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_qnnctx.model import Calibration

AARCH64, X86_64 = 183, 62
_HEADER_BYTES = 64


class NotALibrary(Exception):
    """What the dynamic loader would say."""


def make_model_library(
    onnx: Path,
    where: Path,
    *,
    encodings: Path | None = None,
    calibration: Calibration | None = None,
    machine: int = AARCH64,
) -> Path:
    """Write ``lib<stem>.so`` and ``<stem>_net.json`` of the model ``onnx`` to ``where``.

    The model is quantized by ``encodings`` or ``calibration``, or taken as it is. The JSON has the
    form of the classic converter's, taken from what Qualcomm's compiler was really given; a model
    that it refuses has none.
    """
    from standin_compile import Options, compile_model

    from pytest_qnnctx.build.onnx_graph import write_for_compiler
    from pytest_qnnctx.build.quantize.prepare import prepare
    from pytest_qnnctx.model import Model, Target

    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="standin_library_") as folder:
        scratch = Path(folder)
        model = Model(Path(onnx).absolute(), encodings=encodings, calibration=calibration)
        target = Target("QCS6490", "v68", 93, 2, has_float=False)
        prepared = prepare(model, target, scratch, lambda message: None)
        source = scratch / "model.onnx"
        write_for_compiler(prepared.path, source)
        compiled = compile_model(source, Options(68, 93, 2, 3), scratch)
        quantized = _one_file(prepared.path)
    library = where / f"lib{onnx.stem}.so"
    library.write_bytes(_elf_header(machine) + _payload(onnx.stem, quantized))
    if compiled.net:
        (where / f"{onnx.stem}_net.json").write_text(compiled.net)
    return library


def read_model_library(path: Path, *, on_board: bool) -> tuple[str, bytes]:
    """The graph's name and its ONNX. Raises NotALibrary in the loader's words."""
    try:
        data = path.read_bytes()
    except OSError:
        raise NotALibrary(
            f"{path}: cannot open shared object file: No such file or directory"
        ) from None
    if len(data) < _HEADER_BYTES or data[:4] != b"\x7fELF":
        raise NotALibrary(f"{path}: invalid ELF header")
    (machine,) = struct.unpack("<H", data[18:20])
    if machine != (AARCH64 if on_board else X86_64):
        raise NotALibrary(f"{path}: cannot open shared object file: wrong machine {machine}")
    try:
        with zipfile.ZipFile(io.BytesIO(data[_HEADER_BYTES:])) as archive:
            note: dict[str, Any] = json.loads(archive.read("note.json"))
            return str(note["graph"]), archive.read("model.onnx")
    except (zipfile.BadZipFile, KeyError, ValueError):
        raise NotALibrary(f"{path}: undefined symbol: QnnModel_composeGraphs") from None


def _one_file(path: Path) -> bytes:
    import onnx

    return onnx.load(str(path)).SerializeToString()


def _payload(graph: str, model: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (
            ("note.json", json.dumps({"graph": graph}).encode()),
            ("model.onnx", model),
        ):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return buffer.getvalue()


def _elf_header(machine: int) -> bytes:
    """ELF64, little endian, a shared object (ET_DYN) without segments or sections."""
    ident = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    return ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 0, 0, _HEADER_BYTES, 0, 0, 0, 0, 0
    )
