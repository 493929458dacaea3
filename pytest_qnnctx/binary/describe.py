"""From libQnnSystem's structures in memory to plain values.

Follows no pointer that is null or leads nowhere and no count that is absurd. What the library
itself does to a damaged file cannot be helped, so this runs in a process that may die.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Mapping
from ctypes import Structure, sizeof
from typing import Any

from pytest_qnnctx.binary import qnn_system as qnn
from pytest_qnnctx.binary.memory import Form, bytes_at, structure_at, text_at

MAX_RANK = 16
MAX_DIMENSION = 2**31 - 1
MAX_GRAPHS = 4096
MAX_TENSORS = 65536
MAX_NAME_BYTES = 65536
_VERSIONS_TO_COME = 5
# No HTP allots VTCM in pieces this small: such a number counts MiB.
_SMALLEST_VTCM_BYTES = 4096


class Malformed(Exception):
    """What the library returned contradicts itself: the file is damaged."""


class UnknownLayout(Exception):
    """The library answers in a structure of a version that is not known here."""


def describe(address: int) -> dict[str, Any]:
    """Plain values of the binary info at ``address``.

    Keys: ``info_version``, ``backend_id``, ``build_id``, ``soc_model`` and ``dsp_arch`` (None
    before V3), ``graphs``: ``name``, ``inputs`` and ``outputs`` (``name``, ``data_type``,
    ``shape``, ``scale``, ``offset``), ``spill_fill_bytes``, ``vtcm_bytes``,
    ``optimization_level``, ``hvx_threads`` (None where not told).
    Raises Malformed and UnknownLayout.
    """
    info = _read(qnn.BinaryInfo, address, "the binary info")
    version = info.version
    _check_version(version, 3, "binary info")
    body = info.u.v3 if version == 3 else info.u.v1
    graphs = [_graph(entry) for entry in _graph_entries(body.graphs, body.num_graphs)]
    context: dict[str, int | None] = {"soc_model": None, "dsp_arch": None}
    if version == 3:
        context = _context_metadata(body)
    else:
        _add_spill_of_hw_info(body, graphs)
    return {
        "info_version": version,
        "backend_id": body.backend_id,
        "build_id": _text(body.build_id, "the build id"),
        **context,
        "graphs": graphs,
    }


def _graph_entries(address: int | None, count: int) -> list[Any]:
    if not 1 <= count <= MAX_GRAPHS:
        raise Malformed(f"it counts {count} graphs")
    forms = {1: qnn.GraphInfoV1, 2: qnn.GraphInfoV2, 3: qnn.GraphInfoV3}
    places = _places(address, count, forms, _is_graph, "graph info")
    return [_read(forms[_version_at(at)], at, "a graph") for at in places]


def _is_graph(at: int) -> bool:
    entry = structure_at(qnn.GraphInfoV1, at)
    return (
        entry is not None
        and entry.version in (1, 2, 3)
        and _is_name(entry.name)
        and (entry.num_inputs == 0 or _is_tensor(entry.inputs))
        and 1 <= entry.num_outputs <= MAX_TENSORS
        and _is_tensor(entry.outputs)
    )


def _graph(entry: Any) -> dict[str, Any]:
    name = _text(entry.name, "a graph's name")
    return {
        "name": name,
        "inputs": _tensors(entry.inputs, entry.num_inputs, f"input of graph {name!r}"),
        "outputs": _tensors(entry.outputs, entry.num_outputs, f"output of graph {name!r}"),
        **_graph_blob(entry),
    }


def _graph_blob(entry: Any) -> dict[str, int | None]:
    untold = dict.fromkeys(
        ("spill_fill_bytes", "vtcm_bytes", "optimization_level", "hvx_threads"), None
    )
    if not isinstance(entry, qnn.GraphInfoV3) or not entry.blob:
        return {**untold}
    blob = structure_at(qnn.GraphBlob, entry.blob)
    if blob is None or entry.blob_size < sizeof(qnn.GraphBlob) or blob.version != 1:
        return {**untold}
    vtcm = blob.vtcm if blob.vtcm >= _SMALLEST_VTCM_BYTES else blob.vtcm * 2**20
    return {
        "spill_fill_bytes": blob.spill_fill,
        "vtcm_bytes": vtcm or None,
        "optimization_level": blob.optimization_level,
        "hvx_threads": blob.hvx_threads,
    }


def _context_metadata(body: Any) -> dict[str, int | None]:
    told: dict[str, int | None] = {"soc_model": body.soc_model or None, "dsp_arch": None}
    if body.metadata and body.metadata_size >= sizeof(qnn.ContextBlob):
        blob = structure_at(qnn.ContextBlob, body.metadata)
        if blob is not None and blob.version == 1 and body.backend_id == qnn.HTP_BACKEND:
            told["dsp_arch"] = blob.dsp_arch or None
    return told


def _add_spill_of_hw_info(body: Any, graphs: list[dict[str, Any]]) -> None:
    step = sizeof(qnn.HwInfoBlob)
    if not body.hw_info or body.backend_id != qnn.HTP_BACKEND:
        return
    for start in range(0, body.hw_info_size - step + 1, step):
        blob = _read(qnn.HwInfoBlob, body.hw_info + start, "the hardware info")
        index = blob.graph_index & 0xFFFFFFFF
        if blob.version == 1 and index < len(graphs):
            graphs[index]["spill_fill_bytes"] = blob.spill_fill


def _tensors(address: int | None, count: int, what: str) -> list[dict[str, Any]]:
    if count > MAX_TENSORS:
        raise Malformed(f"it counts {count} tensors as {what}")
    if count == 0:
        return []
    forms = {1: qnn.TensorV1, 2: qnn.Tensor}
    places = _places(address, count, forms, _is_tensor, f"tensor ({what})")
    return [_tensor(_read(qnn.TensorV1, at, what).body, what) for at in places]


def _tensor(body: Any, what: str) -> dict[str, Any]:
    name = _text(body.name, f"the name of an {what}")
    if body.rank > MAX_RANK:
        raise Malformed(f"{what} {name!r} has rank {body.rank}")
    if body.rank and not body.dimensions:
        raise Malformed(f"{what} {name!r} has no dimensions")
    raw = bytes_at(body.dimensions, 4 * body.rank) if body.rank else b""
    if raw is None:
        raise Malformed(f"{what} {name!r} has its dimensions nowhere in memory")
    shape = list((ctypes.c_uint32 * body.rank).from_buffer_copy(raw))
    if any(size > MAX_DIMENSION for size in shape):
        raise Malformed(f"{what} {name!r} has shape {shape}")
    scale, offset = _per_tensor(body.quantize)
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise Malformed(f"{what} {name!r} has the scale {scale}")
    return {
        "name": name,
        "data_type": body.data_type,
        "shape": shape,
        "scale": scale,
        "offset": offset,
    }


def _per_tensor(quantize: Any) -> tuple[float | None, int | None]:
    if quantize.definition != qnn.DEFINED:
        return None, None
    if quantize.encoding == qnn.SCALE_OFFSET:
        form = quantize.form.scale_offset
    elif quantize.encoding == qnn.BW_SCALE_OFFSET:
        form = quantize.form.bw_scale_offset
    else:
        return None, None
    return form.scale, form.offset


def _is_tensor(at: int | None) -> bool:
    tensor = structure_at(qnn.TensorV1, at)
    if tensor is None:
        return False
    body = tensor.body
    # The definition tells where the unused end of an element holds what looks like a beginning: by
    # the smaller step it would be the lower half of the next tensor's pointer to its name.
    return (
        tensor.version in (1, 2)
        and body.quantize.definition in qnn.DEFINITIONS
        and body.rank <= MAX_RANK
        and (body.rank == 0 or bytes_at(body.dimensions, 4 * body.rank) is not None)
        and _is_name(body.name)
    )


def _places(
    address: int | None,
    count: int,
    forms: Mapping[int, type[Structure]],
    is_element: Callable[[int], bool],
    what: str,
) -> list[int]:
    """Addresses of an array's elements; ``forms`` are its versions, each larger than the last.

    How far an array steps depends on the newest version that the *library* knows, not on that of
    the elements. It is the smallest step, from the first element's version on, at which every
    element looks like one: what a smaller step finds is the unused end of an element. (Tried the
    other way round, too large a step can find the counts and pointers of a true element.)
    """
    if not address:
        raise Malformed(f"it has no {what} where it counts {count}")
    first = _version_at(address)
    _check_version(first, max(forms), what)
    for version, form in forms.items():
        places = [address + index * sizeof(form) for index in range(count)]
        if version >= first and all(is_element(at) for at in places[1:]):
            return places
    raise Malformed(f"not each of its {count} {what} elements is one")


def _check_version(version: int, newest: int, what: str) -> None:
    """The next few numbers are those of a library newer than this; any other is no version."""
    if newest < version <= newest + _VERSIONS_TO_COME:
        raise UnknownLayout(f"{what} version {version}")
    if not 1 <= version <= newest:
        raise Malformed(f"it has a {what} of version {version}")


def _is_name(pointer: int | None) -> bool:
    return text_at(pointer, MAX_NAME_BYTES) is not None


def _version_at(address: int) -> int:
    return int.from_bytes(bytes_at(address, 4) or b"", sys.byteorder)


def _read(form: type[Form], address: int, what: str) -> Form:
    found = structure_at(form, address)
    if found is None:
        raise Malformed(f"{what} is nowhere in memory")
    return found


def _text(pointer: int | None, what: str) -> str:
    if not pointer:
        raise Malformed(f"{what} is missing")
    raw = text_at(pointer, MAX_NAME_BYTES)
    if raw is None:
        raise Malformed(f"{what} is nowhere in memory")
    if len(raw) > MAX_NAME_BYTES:
        raise Malformed(f"{what} has {len(raw)} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed(f"{what} is not text") from None
