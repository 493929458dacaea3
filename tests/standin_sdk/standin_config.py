"""The generator's ``--config_file``: what of it is read, and what is passed over.

The outer file's ``config_file_path`` is resolved against the working directory, variables in it are
not expanded. Graph options hold only where ``graph_names`` names the graph; where they do not, or
there is no file, the compiler's defaults do: O 0, VTCM 4 MB, HVX threads 0, and v68 (public
reports). ``hvx_threads`` is read and cannot be given to the compiler underneath.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standin_compile import VTCM_MB, Options

if TYPE_CHECKING:
    from standin_tools import Tool

#: Qnn_SocModel_t of public headers, beside those whose VTCM is known.
SOC_MODELS = frozenset({*VTCM_MB, 37, 67, 72, 78, 82, 85, 87, 88, 90, 95, 96, 97})
#: A part with that architecture, for a generator that compiles for the wrong one.
_PART_OF = {"v68": 93, "v69": 36, "v73": 43, "v75": 57, "v79": 69}
_GRAPH_KEYS = frozenset(
    {"graph_names", "vtcm_mb", "fp16_relaxed_precision", "O", "dlbc", "hvx_threads"}
)
_DEVICE_KEYS = frozenset({"device_id", "dsp_arch", "pd_session", "profiling_level", "cores"})
_SECTIONS = frozenset({"graphs", "devices", "context", "memory", "groupContext"})


class ConfigError(Exception):
    """``exit_status`` and the lines that the tool prints."""

    def __init__(self, exit_status: int, *lines: str) -> None:
        super().__init__(lines[0])
        self.exit_status, self.lines = exit_status, lines


@dataclass(frozen=True)
class Read:
    """Options for the compiler, and the keys that were not known."""

    options: Options = field(default_factory=Options)
    unknown: tuple[str, ...] = ()
    graph_names: tuple[str, ...] = ()
    matched: bool = False


def read_config(tool: Tool, outer: str, graph: str) -> Read:
    """Read both files for ``graph``. Raises ConfigError."""
    if not outer:
        return Read()
    wrapper = _json(Path(outer))
    extensions = wrapper.get("backend_extensions", {})
    unknown = [key for key in wrapper if key not in ("backend_extensions", "context_configs")]
    library = str(extensions.get("shared_library_path", ""))
    if library and not _found(tool, library):
        raise ConfigError(
            1,
            f"Unable to load backend extensions library {library}: cannot open shared object file: "
            "No such file or directory",
        )
    if "config_file_path" not in extensions:
        return Read(unknown=tuple(unknown))
    inner = _json(Path(str(extensions["config_file_path"])))
    unknown += [key for key in inner if key not in _SECTIONS]
    device = _device(tool, inner, unknown)
    block = _block(tool, inner, unknown)
    names = tuple(map(str, block.get("graph_names", ())))
    matched = graph in names and not tool.has_quirk("ignores_graphs")
    options = Options(**device)
    if matched:
        options = Options(
            **device, vtcm_mb=block.get("vtcm_mb"), optimization=int(block.get("O", 0))
        )
    return Read(options, tuple(unknown), names, matched)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(1, f"Failed to open config file {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(1, f"Failed to parse config file {path}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(1, f"Failed to parse config file {path}: no object")
    return data


def _found(tool: Tool, library: str) -> bool:
    places = [Path(library)] if "/" in library else [Path(p) / library for p in tool.libraries]
    return any(place.is_file() for place in places)


def _device(tool: Tool, inner: dict[str, Any], unknown: list[str]) -> dict[str, Any]:
    devices = inner.get("devices", [])
    device = devices[0] if isinstance(devices, list) and devices else {}
    own = tool.quirks.get("soc_key")
    keys = (str(own),) if own else tool.release.soc_keys
    unknown += [f"devices/0/{k}" for k in device if k not in _DEVICE_KEYS and k not in keys]
    found: dict[str, Any] = {}
    soc = next((int(device[key]) for key in keys if key in device), None)
    if soc is not None:
        if soc not in SOC_MODELS:
            # A kernel's soc_id given for the SDK's model number (wyanzhao/qairt-builder).
            raise ConfigError(
                11,
                "Unknown config socModel 0",
                "Unsupported SnapdragonModel = 0",
                "Device Creation failure",
            )
        found["soc_model"] = soc
    arch = device.get("dsp_arch")
    if wrong := tool.quirks.get("wrong_arch"):
        arch, found["soc_model"] = wrong, _PART_OF[wrong]
    if arch:
        found["htp_arch"] = int(str(arch).removeprefix("v"))
    return found


def _block(tool: Tool, inner: dict[str, Any], unknown: list[str]) -> dict[str, Any]:
    graphs = inner.get("graphs")
    own = tool.quirks.get("graphs_form")
    as_list = own == "list" if own else tool.release.graphs_are_a_list
    if graphs is None:
        return {}
    if isinstance(graphs, list) != as_list:
        unknown.append("graphs")
        return {}
    block = dict(graphs[0]) if isinstance(graphs, list) and graphs else dict(graphs or {})
    unknown += [f"graphs/0/{key}" for key in block if key not in _GRAPH_KEYS]
    ignored = list(tool.quirks.get("ignores_keys") or ())
    if tool.has_quirk("ignore_vtcm_mb"):
        ignored.append("vtcm_mb")
    return {key: value for key, value in block.items() if key not in ignored}
