"""The configuration files of the context binary generator: what to compile for, and how.

Two files: an outer one that names the backend's extension library and the inner one. An unknown key
is ignored without a word, and graph options bind by the graph's name alone: a block whose
``graph_names`` does not match is dropped, and with it optimization level, VTCM and HVX threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pytest_qnnctx.build.qairt.version import version_tuple
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Target
from pytest_qnnctx.parts import PARTS

EXTENSIONS_LIBRARY = "libQnnHtpNetRunExtensions.so"
OPTIMIZATION_LEVEL = 3
#: From these versions on ``graphs`` is a list (before: one object; 2.18 is reported to take the
#: object) and the SoC is called ``soc_model`` (before: ``soc_id``). No public text tells the exact
#: version of the change; a wrong guess is caught where the binary is held against what was asked.
_GRAPHS_ARE_A_LIST = (2, 20)
_SOC_MODEL_KEY = (2, 30)
#: HTP versions whose contexts can share weights between graphs.
_WEIGHT_SHARING_FROM = 73
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")


def graph_name(model: str) -> str:
    """A base name for DLCs, from a model's name: letters, digits and ``_``, a letter first.

    No tool changes such a name, so that the graph is called what the configuration calls it.
    """
    name = _UNSAFE.sub("_", model).strip("_")[:100].rstrip("_")
    if not name or not name[0].isalpha():
        name = f"m_{name}".rstrip("_")
    return name


@dataclass(frozen=True)
class CompileOptions:
    """What is asked of the compiler. ``vtcm_mb`` in MiB; None leaves a value to the compiler."""

    htp_arch: str
    soc_model: int
    vtcm_mb: int | None = None
    optimization_level: int = OPTIMIZATION_LEVEL
    hvx_threads: int | None = None

    def asked(self) -> dict[str, Any]:
        """As provenance records it, for the binary to be held against."""
        values = {
            "htp_arch": self.htp_arch,
            "soc_model": self.soc_model,
            "vtcm_mb": self.vtcm_mb,
            "optimization_level": self.optimization_level,
            "hvx_threads": self.hvx_threads,
        }
        return {key: value for key, value in values.items() if value is not None}


def compile_options(target: Target) -> CompileOptions:
    """What to ask for ``target``. Raises UsageError for a SoC whose model number is not known."""
    if target.soc_model is None:
        known = ", ".join(part.name for part in PARTS)
        raise UsageError(
            f"the SDK's model number of SoC {target.soc} is not known: nothing can be built for it",
            next_step=f"correct the board's soc (known: {known})",
        )
    return CompileOptions(target.htp_arch, target.soc_model, target.vtcm_mb)


def inner_config(
    dlc: str, options: CompileOptions, version: str, *, graphs: Sequence[str] = ()
) -> str:
    """The HTP's own file, as ``version`` of the SDK wants it, for the DLC at path ``dlc``.

    Graph options are bound to the DLC's base name, after which the SDK calls its graph, or to
    ``graphs`` where the DLC itself says its graphs' names.
    """
    numbers = version_tuple(version)
    block: dict[str, Any] = {
        "graph_names": list(graphs) or [PurePosixPath(dlc).stem],
        "O": options.optimization_level,
    }
    if options.vtcm_mb is not None:
        # Left out, some versions compile for 4 MB, which a part with 2 does not have.
        block["vtcm_mb"] = options.vtcm_mb
    if options.hvx_threads is not None:
        block["hvx_threads"] = options.hvx_threads
    soc = "soc_model" if numbers >= _SOC_MODEL_KEY else "soc_id"
    config: dict[str, Any] = {
        "graphs": [block] if numbers >= _GRAPHS_ARE_A_LIST else block,
        "devices": [{"device_id": 0, soc: options.soc_model, "dsp_arch": options.htp_arch}],
    }
    if _arch_number(options.htp_arch) >= _WEIGHT_SHARING_FROM:
        config["context"] = {"weight_sharing_enabled": False}
    return json.dumps(config, indent=2) + "\n"


def outer_config(library: str, inner: str) -> str:
    """The file for ``--config_file``. Both paths are absolute: the SDK looks a relative one up in
    its working directory, not beside this file. Raises UsageError for a relative one.
    """
    for path in (library, inner):
        if not PurePosixPath(path).is_absolute():
            raise UsageError(f"'{path}' in a backend configuration is not an absolute path")
    extensions = {"shared_library_path": library, "config_file_path": inner}
    return json.dumps({"backend_extensions": extensions}, indent=2) + "\n"


def _arch_number(arch: str) -> int:
    digits = arch.removeprefix("v")
    return int(digits) if digits.isdigit() else 0
