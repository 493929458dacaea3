"""Putting a binary into a store, under a name that says which bytes it is."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.build.pins.binary_source import (
    MissingInStoreError,
    fetch_binary,
    open_filesystem,
    shown_file,
)
from pytest_qnnctx.build.pins.lfs import pointed_sha256
from pytest_qnnctx.build.pins.manifest import PinnedBinary
from pytest_qnnctx.build.pins.store_errors import explain
from pytest_qnnctx.errors import InfrastructureError, ProductFailure, QnnctxError

if TYPE_CHECKING:
    from pytest_qnnctx.build.pins.store_place import StorePlace
    from pytest_qnnctx.build.toolchain import Progress
    from pytest_qnnctx.model import Artifact

#: An upload, or the reading back of one, that takes longer than this (seconds) is given up.
TIME_LIMIT_S = 1800.0
_CHUNK = 1 << 20


def published_name(artifact: Artifact) -> str:
    """``digits_w8a8_v68-0123456789ab.bin``: another binary has another name."""
    return f"{artifact.path.stem}-{artifact.sha256[:12]}.bin"


def publish(artifact: Artifact, place: StorePlace, progress: Progress) -> PinnedBinary:
    """Copy the binary into ``place`` and see that it can be fetched from there.

    One that is there already stays as it is. Raises InfrastructureError where the store holds other
    bytes under that name (nothing is overwritten), cannot be written, or does not give back what it
    was given; and as :func:`~pytest_qnnctx.build.pins.binary_source.fetch_binary` does.
    """
    binary = PinnedBinary(published_name(artifact), artifact.sha256, artifact.size_bytes)
    if place.directory is not None:
        _to_directory(artifact.path, place.directory, binary)
    else:
        _to_url(artifact.path, place, binary, progress)
    return binary


def is_writable_directory(place: StorePlace) -> bool:
    """Whether binaries can be put into ``place`` without asking: a directory that is there."""
    return (
        place.directory is not None
        and place.directory.is_dir()
        and os.access(place.directory, os.W_OK)
    )


def _to_directory(source: Path, folder: Path, binary: PinnedBinary) -> None:
    target = folder / (binary.file or "")
    temporary = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            if binary.sha256 not in (pointed_sha256(target), _sha256(target)):
                raise _in_the_way(f"'{target}'")
            return
        handle, temporary = tempfile.mkstemp(prefix=".publishing-", dir=folder)
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as written, source.open("rb") as read:
            while chunk := read.read(_CHUNK):
                digest.update(chunk)
                written.write(chunk)
            written.flush()
            os.fchmod(written.fileno(), 0o644)
            os.fsync(written.fileno())
        if digest.hexdigest() != binary.sha256:
            raise InfrastructureError(
                f"'{source}' changed while it was published", next_step="build it again"
            )
        Path(temporary).replace(target)
    except OSError as error:
        raise InfrastructureError(
            f"cannot publish to '{folder}': {error.strerror or error}",
            next_step="check that it can be written and has space",
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _to_url(source: Path, place: StorePlace, binary: PinnedBinary, progress: Progress) -> None:
    if _is_there(place, binary, progress):
        return
    where = shown_file(place, binary)
    progress(f"publishing {where}")
    try:
        filesystem, path = open_filesystem(place, binary.file or "", TIME_LIMIT_S)
        # HTTP stores (Artifactory, a WebDAV directory) take PUT; fsspec's default is POST.
        how: dict[str, Any] = {"method": "put"} if place.scheme in ("http", "https") else {}
        filesystem.put_file(str(source), path, **how)
    except QnnctxError:
        raise
    except Exception as error:  # each file system behind fsspec raises kinds of its own
        trouble = explain(error, place.scheme, where)
        takes_none = ""
        if place.scheme in ("http", "https"):
            takes_none = "see whether this server takes uploads (PUT); if not, publish to a "
            takes_none += "directory and copy that there; else "
        raise InfrastructureError(
            f"could not publish {where}: {trouble.what}",
            next_step=takes_none + trouble.next_step,
        ) from None
    if not _is_there(place, binary, progress):
        raise InfrastructureError(
            f"the store took {where} and does not have it",
            next_step="look at the store: it may take uploads at another address",
        )


def _is_there(place: StorePlace, binary: PinnedBinary, progress: Progress) -> bool:
    with tempfile.TemporaryDirectory(prefix="qnnctx-") as folder:
        try:
            fetch_binary(
                place,
                binary,
                Path(folder) / "binary",
                time_limit_s=TIME_LIMIT_S,
                progress=progress,
            )
        except MissingInStoreError:
            return False
        except ProductFailure as failure:
            raise _in_the_way(shown_file(place, binary)) from failure
    return True


def _in_the_way(where: str) -> InfrastructureError:
    return InfrastructureError(
        f"the store holds other bytes as {where}; nothing was overwritten",
        next_step="find out how they came there, and remove them if they are a broken upload",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
