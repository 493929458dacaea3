"""What a context binary says about itself, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: QNN data type number -> name used everywhere in this project (source: the vendor's public API
#: constants). ``ufixed8`` and its kin are quantized: real = (q + offset) * scale.
DTYPES: Mapping[int, str] = {
    0x0008: "int8", 0x0016: "int16", 0x0032: "int32", 0x0064: "int64",
    0x0108: "uint8", 0x0116: "uint16", 0x0132: "uint32", 0x0164: "uint64",
    0x0216: "float16", 0x0232: "float32", 0x0264: "float64",
    0x0304: "sfixed4", 0x0308: "sfixed8", 0x0316: "sfixed16", 0x0332: "sfixed32",
    0x0404: "ufixed4", 0x0408: "ufixed8", 0x0416: "ufixed16", 0x0432: "ufixed32",
    0x0508: "bool8",
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """A graph input or output. ``scale``/``offset`` are None unless it is quantized per tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    offset: int | None = None


@dataclass(frozen=True)
class GraphInfo:
    """One graph. None means that the binary (or the library at hand) does not say.

    ``spill_fill_bytes`` is the spill/fill buffer in DDR; ``vtcm_bytes`` the VTCM of the graph blob;
    ``hvx_threads`` is 0 where the build left the number to the compiler.
    """

    name: str
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    spill_fill_bytes: int | None = None
    vtcm_bytes: int | None = None
    optimization_level: int | None = None
    hvx_threads: int | None = None


@dataclass(frozen=True)
class BinaryInfo:
    """A whole context binary.

    ``htp_arch`` ("v68"), ``soc`` ("QCS6490") and ``compiled_vtcm_bytes`` come from the compiler's
    option string in the file; ``qnn_version`` ("2.51.0.260929181845") from its build id. The
    architecture that the metadata gives (info V3) must agree with the option string's.
    ``unknown`` maps each field that is None to the reason; a graph's as ``graphs[0].vtcm_bytes``.
    """

    sha256: str
    size_bytes: int
    htp_arch: str | None = None
    soc: str | None = None
    qnn_version: str | None = None
    compiled_vtcm_bytes: int | None = None
    info_version: int | None = None
    graphs: tuple[GraphInfo, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The form of ``qnnctx inspect --json``: strict JSON values only, lists for tuples."""
        values: dict[str, Any] = _plain(asdict(self))
        return values


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
