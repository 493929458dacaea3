"""A context binary's description for people: ``qnnctx inspect FILE``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_qnnctx.binary.info import BinaryInfo, GraphInfo, TensorInfo

_LABELS = {
    "htp_arch": "HTP architecture",
    "soc": "SoC",
    "qnn_version": "QNN version",
    "compiled_vtcm_bytes": "VTCM compiled for",
    "info_version": "binary info",
}


def to_text(info: BinaryInfo, path: Path) -> str:
    """Several lines without a newline at the end; what is unknown stands there with its reason."""
    rows = [("size", _size(info.size_bytes)), ("sha256", info.sha256)]
    for field, label in _LABELS.items():
        value = getattr(info, field)
        rows.append((label, _value(field, value, info.unknown.get(field))))
    if not info.graphs:
        rows.append(("graphs", _unknown(info.unknown.get("graphs"))))
    lines = [str(path), *_aligned(rows)]
    for index, graph in enumerate(info.graphs):
        lines += ["", *_graph_lines(index, graph, info)]
    return "\n".join(lines)


def _graph_lines(index: int, graph: GraphInfo, info: BinaryInfo) -> list[str]:
    labels = {
        "spill_fill_bytes": "spill/fill buffer",
        "vtcm_bytes": "VTCM",
        "optimization_level": "optimization level",
        "hvx_threads": "HVX threads",
    }
    rows = [
        (label, _value(field, getattr(graph, field), info.unknown.get(f"graphs[{index}].{field}")))
        for field, label in labels.items()
    ]
    lines = [f"graph {_name(graph.name)}", *_aligned(rows)]
    for kind, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        lines += [f"  {kind}", *_tensor_lines(tensors)]
    return lines


def _tensor_lines(tensors: Sequence[TensorInfo]) -> list[str]:
    if not tensors:
        return ["    none"]
    table = [
        (
            _name(tensor.name),
            tensor.dtype,
            "x".join(str(size) for size in tensor.shape) or "scalar",
            "" if tensor.scale is None else f"scale {tensor.scale:.9g}  offset {tensor.offset}",
        )
        for tensor in tensors
    ]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    return [
        "    "
        + "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
        ).rstrip()
        for row in table
    ]


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(label) for label, _ in rows)
    return [f"  {label.ljust(width)}  {value}" for label, value in rows]


def _value(field: str, value: object, reason: str | None) -> str:
    if value is None:
        return _unknown(reason)
    if field.endswith("_bytes") and isinstance(value, int):
        return _size(value)
    return f"V{value}" if field == "info_version" else str(value)


def _name(name: str) -> str:
    """A name out of a file, which may hold anything, as text that cannot command a terminal."""
    return name if name.isprintable() and name else ascii(name)


def _unknown(reason: str | None) -> str:
    return f"unknown: {reason}" if reason else "unknown"


def _size(count: int) -> str:
    return f"{count} bytes" if count == 0 else f"{count} bytes ({count / 2**20:.2f} MiB)"
