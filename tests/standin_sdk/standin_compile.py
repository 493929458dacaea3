"""The real work of the generator: a QDQ ONNX becomes a context binary, by Qualcomm's compiler.

The compiler that comes with ``onnxruntime-qnn`` names the graph by a hash and writes its own
version. Both are then put right in the binary, so that it is as one of the SDK that the stand-in
acts as: names and lengths are stored as text, and the binary still loads and runs (measured).
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: SDK's SoC model -> VTCM in MB (public tables); what `vtcm_mb: 0` stands for.
VTCM_MB = {
    30: 4,
    35: 2,
    36: 8,
    39: 8,
    42: 8,
    43: 8,
    52: 8,
    57: 8,
    60: 8,
    66: 8,
    69: 8,
    77: 8,
    93: 2,
}
_GRAPH = re.compile(rb"QNNExecutionProvider_QNNExecutionProvider_\d+_\d+_\d+")
_BUILD = re.compile(rb"v\d+\.\d+\.\d+\.\d{6,}")
_BEFORE = (b"", b"PICKLE/256/")


@dataclass(frozen=True)
class Options:
    """What is compiled for. None: not told, and the compiler's own default holds."""

    htp_arch: int | None = None
    soc_model: int | None = None
    vtcm_mb: int | None = None
    optimization: int = 0

    def for_provider(self) -> dict[str, str]:
        options = {"htp_graph_finalization_optimization_mode": str(self.optimization)}
        if self.htp_arch is not None:
            options["htp_arch"] = str(self.htp_arch)
        if self.soc_model is not None:
            options["soc_model"] = str(self.soc_model)
        vtcm = self.vtcm_mb
        if vtcm == 0:
            vtcm = VTCM_MB.get(self.soc_model or 0)
        if vtcm is not None:
            options["vtcm_mb"] = str(vtcm)
        return options


@dataclass(frozen=True)
class Compiled:
    """``binary`` is None where the compiler refused; ``log`` is all it said, ``net`` its graph."""

    binary: bytes | None
    log: str
    net: str = ""


def compile_model(source: Path, options: Options, scratch: Path) -> Compiled:
    """Compile the ONNX ``source``, whose inputs and outputs are as they shall be."""
    dumped = scratch / "dumped"
    dumped.mkdir()
    extra = {"dump_json_qnn_graph": "1", "json_qnn_graph_dir": "dumped"}
    request = {
        "model": source.name,
        "context": "context.onnx",
        "options": {**options.for_provider(), **extra},
    }
    (scratch / "request.json").write_text(json.dumps(request))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest_qnnctx.build.ort_compile", "request.json"],
        cwd=scratch,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    binaries = sorted(scratch.glob("context*.bin"))
    nets = [p for p in sorted(dumped.glob("*.json")) if not p.name.endswith("_tensor_log.json")]
    if done.returncode != 0 or len(binaries) != 1:
        return Compiled(None, done.stdout)
    return Compiled(
        binaries[0].read_bytes(), done.stdout, nets[0].read_text() if len(nets) == 1 else ""
    )


def as_made_by(binary: bytes, graph: str, build_id: str) -> bytes:
    """The same binary with the graph's name and the build id of another SDK."""
    data = bytearray(binary)
    new = graph.encode()
    for found in list(_GRAPH.finditer(binary)):
        old = found.group()
        for before in _BEFORE:
            start = found.start() - len(before)
            length = struct.pack("<I", len(before) + len(old))
            if binary[start : found.start()] == before and binary[start - 4 : start] == length:
                assert len(new) <= len(old), f"{graph} is too long a name for the stand-in"
                data[start - 4 : start] = struct.pack("<I", len(before) + len(new))
                data[found.start() : found.end()] = new.ljust(len(old), b"\0")
                break
    wanted = b"v" + build_id.encode()
    return re.sub(
        _BUILD, lambda m: wanted if len(m.group()) == len(wanted) else m.group(), bytes(data)
    )
