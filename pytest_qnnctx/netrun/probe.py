"""What this machine and its runtime are, found without loading any of it."""

from __future__ import annotations

import mmap
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_BUILD_ID = re.compile(rb"v(\d+\.\d+\.\d+\.\d{12}(?:_\d+)?)")
_LIBRARIES = ("libQnnHtp.so", "libQnnSystem.so")
_PACKAGES = ("numpy", "onnxruntime", "onnxruntime_qnn")
SOC_FILES = Path("/sys/devices/soc0")


def probe(backend: Path | None = None) -> dict[str, Any]:
    """Machine, SoC, packages and QNN version; None for what cannot be found.

    ``backend`` is another ``libQnnHtp.so`` than the package's. ``missing`` lists the packages
    that are not installed. An x86 machine can only emulate the HTP.
    """
    machine = os.uname().machine
    qnn = qnn_version(library_directory(backend))
    return {
        "machine": machine,
        "emulated": is_emulated(machine),
        "qnn_version": qnn,
        "onnxruntime": _version("onnxruntime"),
        "onnxruntime_qnn": _version("onnxruntime-qnn"),
        "engine": engine(qnn),
        "soc": _soc_file("machine"),
        "soc_id": _soc_file("soc_id"),
        "missing": [name for name in _PACKAGES if find_spec(name) is None],
    }


def is_emulated(machine: str) -> bool:
    """Whether the HTP is Qualcomm's emulator: on x86 there is nothing else."""
    return machine.lower() in {"x86_64", "amd64", "i386", "i686"}


def engine(qnn: str | None) -> str:
    """The runtime and its versions in one line."""
    return (
        f"onnxruntime-qnn {_version('onnxruntime-qnn') or 'unknown'} / QNN {qnn or 'unknown'} / "
        f"onnxruntime {_version('onnxruntime') or 'unknown'}"
    )


def library_directory(backend: Path | None) -> Path | None:
    """Where the QNN libraries lie: beside ``backend``, or in the package ``onnxruntime_qnn``."""
    if backend is not None:
        return backend.resolve().parent
    spec = find_spec("onnxruntime_qnn")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def qnn_version(directory: Path | None) -> str | None:
    """The build id in the libraries, such as "2.51.0.260929181845". About 0.1 s for 106 MB."""
    for name in _LIBRARIES if directory else ():
        assert directory is not None
        try:
            with (
                (directory / name).open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
            ):
                found = _BUILD_ID.search(view)
                if found:
                    return found[1].decode()
        except (OSError, ValueError):
            continue
    return None


def _version(package: str) -> str | None:
    from importlib import metadata  # It imports a mail parser: not before it is needed.

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _soc_file(name: str) -> str | None:
    try:
        return (SOC_FILES / name).read_text().strip() or None
    except OSError:
        return None
