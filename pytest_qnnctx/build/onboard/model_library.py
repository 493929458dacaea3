"""The cross-compiled model library of the classic route: ``libclassifier.so`` and what is with it.

``qnn-onnx-converter`` writes C++ and ``<model>_net.json``; ``qnn-model-lib-generator`` compiles the
library for the board. The library is machine code: what it computes is told by that JSON alone,
which has the form of the compiled graph's dump (:mod:`pytest_qnnctx.build.compiled_graph`).
"""

from __future__ import annotations

import glob
import json
import struct
from dataclasses import dataclass
from pathlib import Path

from pytest_qnnctx.build.compiled_graph import CompiledGraph, parse_compiled_graph
from pytest_qnnctx.build.pins.lfs import refuse_pointer
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Model

_MACHINES = {3: "x86", 40: "arm", 62: "x86-64", 183: "aarch64"}
#: Where qnn-model-lib-generator puts it beneath its output directory.
_FOLDERS = ("", "aarch64-*/", "*/aarch64-*/")


@dataclass(frozen=True)
class ModelLibrary:
    """``graph_name`` is the converter's; ``net`` is None without a readable ``net_json``."""

    path: Path
    graph_name: str
    net_json: Path | None
    net: CompiledGraph | None


def find_model_library(model: Model) -> ModelLibrary:
    """The library beside the ONNX: ``lib<stem>.so`` or ``<stem>.so``, there or in ``aarch64-*/``.

    Raises UsageError where there is none, more than one, or none for aarch64, and
    InfrastructureError where it is a Git LFS pointer.
    """
    stem, folder = model.path.stem, model.path.parent
    found = sorted(
        {
            path.resolve()
            for place in _FOLDERS
            for name in (f"lib{stem}.so", f"{stem}.so")
            for path in folder.glob(place + glob.escape(name))
            if path.is_file()
        }
    )
    if not found:
        raise UsageError(
            f"toolchain 'onboard' compiles a model library, and there is no lib{stem}.so beside "
            f"'{model.path}'",
            next_step="make it for the board's architecture with qnn-onnx-converter and "
            "qnn-model-lib-generator, and put it there",
        )
    if len(found) > 1:
        raise UsageError(
            f"model {model.name!r} has {len(found)} model libraries: "
            + ", ".join(str(path) for path in found),
            next_step="keep the one that is for the board",
        )
    refuse_pointer(found[0], "model library")
    _check_machine(found[0])
    nets = [p for p in (found[0].parent, folder) if (p / f"{stem}_net.json").is_file()]
    net_json = nets[0] / f"{stem}_net.json" if nets else None
    return ModelLibrary(found[0], stem, net_json, _read_net(net_json))


def _check_machine(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        raise UsageError(
            f"'{path}' is no shared library (its first bytes are {head[:4]!r})",
            next_step="build it again with qnn-model-lib-generator",
        )
    (machine,) = struct.unpack("<H" if head[5] == 1 else ">H", head[18:20])
    if machine != 183:
        raise UsageError(
            f"'{path}' is for {_MACHINES.get(machine, f'machine {machine}')}, not for aarch64",
            next_step="cross-compile it for the board: qnn-model-lib-generator -t aarch64-...",
        )


def _read_net(path: Path | None) -> CompiledGraph | None:
    """None where there is none, its form is another, or it lists no op: that is no evidence."""
    if path is None:
        return None
    try:
        net = parse_compiled_graph(json.loads(path.read_text(errors="replace")))
        return net if net.nodes else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
