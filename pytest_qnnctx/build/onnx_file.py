"""Load and save ONNX files: a broken one ends in a sentence, a big one is no problem."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

#: Protobuf's own limit is 2 GiB; above this many bytes the weights go to a file of their own.
EXTERNAL_DATA_FROM_BYTES = 1_800_000_000
_INLINE_BYTES = 1024

_EXPORT = "export the model again"


def load_model(path: Path, *, with_weights: bool = True) -> ModelProto:
    """The model in ``path``; ``with_weights`` reads its external data too.

    Raises UsageError where there is no such readable file, ProductFailure where it is not a usable
    ONNX model or its external data is missing, too short, or outside the model's directory.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the model {path}: {error.strerror or error}",
            next_step="check the path in the qnn_model marker",
        ) from None
    if not raw:
        raise ProductFailure(f"the model {path} is an empty file", next_step=_EXPORT)
    try:
        model = onnx.ModelProto.FromString(raw)
    except (DecodeError, ValueError):
        raise ProductFailure(
            f"{path} is not an ONNX model, or a damaged one", next_step=_EXPORT
        ) from None
    if not model.graph.node or not model.graph.output or not model.opset_import:
        raise ProductFailure(
            f"{path} is not a usable ONNX model: it has no nodes, no outputs or no opset",
            next_step=_EXPORT,
        )
    locations = external_data(model, path)
    if with_weights and locations:
        try:
            onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ProductFailure(
                f"the external data of {path} cannot be read: {error}", next_step=_EXPORT
            ) from None
    return model


def may_have_external_data(path: Path) -> bool:
    """Whether ``path`` could name external data; False is certain, and costs no import of onnx.

    A tensor names its file under the key ``location``, which stands in the ONNX as it is. Raises
    UsageError where there is no such readable file.
    """
    import mmap

    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return False
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(b"location") >= 0
    except OSError as error:
        raise UsageError(
            f"cannot read the model {path}: {error.strerror or error}",
            next_step="check the path in the qnn_model marker",
        ) from None


def stored_bytes(model: ModelProto) -> int:
    """Bytes of all tensors in ``model`` (protobuf cannot measure a message above 2 GiB)."""
    return sum(len(t.raw_data) or 8 * math.prod(t.dims) for t in tensors(model.graph))


def save_model(
    model: ModelProto, path: Path, *, external_from_bytes: int = EXTERNAL_DATA_FROM_BYTES
) -> Path:
    """Write ``model`` to ``path``, whole or not at all; weights beside it where it is large.

    With more than ``external_from_bytes`` of weights they go to ``<path>.data``; ``model``
    itself then loses them.
    """
    import onnx

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = path.with_name(f"{path.name}.data")
    try:
        if stored_bytes(model) > external_from_bytes:
            data.unlink(missing_ok=True)
            onnx.save_model(
                model,
                str(temporary),
                save_as_external_data=True,
                all_tensors_to_one_file=True,
                location=data.name,
                size_threshold=_INLINE_BYTES,
            )
        else:
            temporary.write_bytes(model.SerializeToString())
        temporary.replace(path)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write {path}: {error.strerror or error}", next_step="check the disk"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def external_data(model: ModelProto, path: Path) -> list[Path]:
    """Every external data file that ``model`` (loaded from ``path``) names, sorted.

    Raises ProductFailure for one that is missing or that lies outside the model's directory.
    """
    found: dict[str, Path] = {}
    for tensor in tensors(model.graph):
        location = next((e.value for e in tensor.external_data if e.key == "location"), None)
        if tensor.data_location != tensor.EXTERNAL or location in found:
            continue
        found[str(location)] = _inside(location, tensor.name, path)
    return sorted(found.values())


def _inside(location: str | None, tensor: str, path: Path) -> Path:
    pure = PurePosixPath((location or "").replace("\\", "/"))
    if not location or "\0" in location or pure.is_absolute() or ".." in pure.parts:
        raise ProductFailure(
            f"{path} keeps tensor {tensor!r} in {location!r}, outside the model's directory",
            next_step="save the model with its external data beside it",
        )
    target = path.parent / pure
    if not target.resolve().is_relative_to(path.parent.resolve()):
        raise ProductFailure(
            f"{path} keeps tensor {tensor!r} in {location!r}, a link out of the model's directory",
            next_step="save the model with its external data beside it",
        )
    if not target.is_file():
        raise ProductFailure(
            f"{path} keeps tensor {tensor!r} in {location!r}, and {target} is missing",
            next_step="put the external data file beside the model, under that name",
        )
    return target


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor stored in ``graph``: initializers and attributes, bodies included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    if attribute.HasField("g"):
        yield from tensors(attribute.g)
    for graph in attribute.graphs:
        yield from tensors(graph)
