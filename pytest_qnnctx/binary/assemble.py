"""From what the reading process found to a BinaryInfo: what is known, and why the rest is not."""

from __future__ import annotations

import re
from typing import Any

from pytest_qnnctx.binary.child_process import ChildReport
from pytest_qnnctx.binary.info import DTYPES, BinaryInfo, GraphInfo, TensorInfo
from pytest_qnnctx.binary.qnn_system import HTP_BACKEND

_VERSION = re.compile(r"v?(\d+\.\d+\.\d+(?:\.\d+)?)\S*")
_GRAPH_NUMBERS = ("spill_fill_bytes", "vtcm_bytes", "optimization_level", "hvx_threads")


def assemble(
    report: ChildReport, *, sha256: str, size_bytes: int, no_library: str = ""
) -> BinaryInfo:
    """Put a BinaryInfo together. ``no_library`` is the reason where no library was at hand.

    A value is given only where all that the file says about it agrees.
    """
    unknown: dict[str, str] = {}
    metadata, options = report.metadata, report.options
    graphs: tuple[GraphInfo, ...] = ()
    info_version = None
    if metadata is None:
        unknown["info_version"] = unknown["graphs"] = no_library
    else:
        info_version = metadata["info_version"]
        graphs = tuple(_graph(graph) for graph in metadata["graphs"])
        unknown |= _untold(graphs, info_version)
    return BinaryInfo(
        sha256=sha256,
        size_bytes=size_bytes,
        htp_arch=_arch(metadata, options, unknown),
        soc=_soc(metadata, options, unknown),
        qnn_version=_qnn_version(metadata, options, unknown),
        compiled_vtcm_bytes=_compiled_vtcm(metadata, options, unknown),
        info_version=info_version,
        graphs=graphs,
        unknown=unknown,
    )


def _arch(
    metadata: dict[str, Any] | None, options: dict[str, Any], unknown: dict[str, str]
) -> str | None:
    found = {f"arch={value}": value for value in options["values"]["arch"]}
    if metadata is not None and metadata["dsp_arch"] is not None:
        found[f"metadata says {metadata['dsp_arch']}"] = str(metadata["dsp_arch"])
    arch = _agreed("htp_arch", found, metadata, options, unknown)
    if arch is not None and not re.fullmatch(r"[1-9]\d{1,2}", arch):
        unknown["htp_arch"] = f"the file gives the architecture as {arch!r}"
        return None
    return None if arch is None else f"v{arch}"


def _soc(
    metadata: dict[str, Any] | None, options: dict[str, Any], unknown: dict[str, str]
) -> str | None:
    found = {f"soc_type={value}": value for value in options["values"]["soc_type"]}
    soc = _agreed("soc", found, metadata, options, unknown)
    if soc is None and metadata is not None and metadata["soc_model"] is not None:
        # One number stands for several parts (93: QCS6490 and QCM6490), so it gives no name.
        unknown["soc"] += f" (its metadata gives SoC model {metadata['soc_model']})"
    return soc or None


def _compiled_vtcm(
    metadata: dict[str, Any] | None, options: dict[str, Any], unknown: dict[str, str]
) -> int | None:
    found = {f"vtcm_size={value}": value for value in options["values"]["vtcm_size"]}
    size = _agreed("compiled_vtcm_bytes", found, metadata, options, unknown)
    if size is not None and not re.fullmatch(r"[1-9]\d*", size):
        unknown["compiled_vtcm_bytes"] = f"the file gives vtcm_size={size}"
        return None
    return None if size is None else int(size)


def _agreed(
    field: str,
    found: dict[str, str],
    metadata: dict[str, Any] | None,
    options: dict[str, Any],
    unknown: dict[str, str],
) -> str | None:
    """The one value of ``found`` (where it stands -> value), or None and the reason."""
    distinct = set(found.values())
    if not options["complete"]:
        unknown[field] = "the file holds more text like a compiler's option string than is read"
    elif len(distinct) > 1:
        unknown[field] = f"the file contradicts itself: {', '.join(sorted(found))}"
    elif distinct and distinct != {""}:
        return distinct.pop()
    elif metadata is not None and metadata["backend_id"] != HTP_BACKEND:
        unknown[field] = f"the binary is for QNN backend {metadata['backend_id']}, not the HTP (6)"
    elif options["strings"] == 0:
        unknown[field] = "the file holds no option string of the HTP compiler"
    else:
        unknown[field] = "the compiler's option string in the file does not give it"
    return None


def _qnn_version(
    metadata: dict[str, Any] | None, options: dict[str, Any], unknown: dict[str, str]
) -> str | None:
    builds = [metadata["build_id"]] if metadata is not None else options["build_ids"]
    if len(builds) > 1:
        unknown["qnn_version"] = f"the file holds several build ids: {', '.join(builds)}"
    elif not builds:
        unknown["qnn_version"] = "no build id was found in the file"
    elif match := _VERSION.fullmatch(builds[0]):
        return match[1]
    else:
        unknown["qnn_version"] = f"the file gives the build id as {builds[0]!r}"
    return None


def _graph(graph: dict[str, Any]) -> GraphInfo:
    return GraphInfo(
        name=graph["name"],
        inputs=tuple(_tensor(tensor) for tensor in graph["inputs"]),
        outputs=tuple(_tensor(tensor) for tensor in graph["outputs"]),
        **{name: graph[name] for name in _GRAPH_NUMBERS},
    )


def _tensor(tensor: dict[str, Any]) -> TensorInfo:
    number = tensor["data_type"]
    return TensorInfo(
        name=tensor["name"],
        dtype=DTYPES.get(number, f"0x{number:04x}"),
        shape=tuple(tensor["shape"]),
        scale=tensor["scale"],
        offset=tensor["offset"],
    )


def _untold(graphs: tuple[GraphInfo, ...], info_version: int) -> dict[str, str]:
    old = f"files with binary info V{info_version} do not give it"
    reason = old if info_version < 3 else "the graph's blob in the file does not give it"
    return {
        f"graphs[{index}].{name}": reason
        for index, graph in enumerate(graphs)
        for name in _GRAPH_NUMBERS
        if getattr(graph, name) is None
    }
