"""Read a context binary: the one way in."""

from __future__ import annotations

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from pytest_qnnctx.binary.assemble import assemble
from pytest_qnnctx.binary.child_process import ChildReport, read_in_child
from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.binary.library import SystemLibrary, locate_system_library
from pytest_qnnctx.errors import BinaryUnreadable, InfrastructureError, UsageError

# Measured: reads of 64 KiB stay in the cache and take a fifth of the time of larger ones.
CHUNK_BYTES = 64 * 1024

# On top of the time limit: the child looks through the whole file, as this process does.
SLOWEST_DISK_BYTES_PER_S = 20e6

# First bytes of what is given instead of a context binary now and then.
_OTHER_KINDS = {
    b"\x7fELF": "a compiled program or library",
    b"PK\x03\x04": "a zip archive, as a DLC is",
}


def read_binary(
    path: Path, *, library: Path | None = None, time_limit_s: float = 30.0
) -> BinaryInfo:
    """What the context binary ``path`` says about itself.

    ``library`` is a libQnnSystem.so; None looks for one (:mod:`.library`). Without one only the
    architecture, SoC, VTCM and version are read, and ``unknown`` says why the rest is not. The
    library works in a process of its own, which has ``time_limit_s`` seconds and one more for each
    20 MB of the file.

    Raises UsageError (no such file), BinaryUnreadable (not a context binary, or a damaged one) and
    InfrastructureError (the library, the disk, or the file changed meanwhile).
    """
    path = Path(path)
    found = _given(library) if library is not None else locate_system_library()
    with _open(path) as file:
        before = os.fstat(file.fileno())
        if before.st_size == 0:
            raise BinaryUnreadable(
                f"{path} is empty.", next_step="Build the binary again, or copy it again."
            )
        head = os.pread(file.fileno(), 4, 0)
        limit = time_limit_s + before.st_size / SLOWEST_DISK_BYTES_PER_S
        with ThreadPoolExecutor(1) as pool:
            child = pool.submit(read_in_child, path, found.path, limit)
            sha256 = _sha256(file, path)
            error = child.exception()
        # The child opened the file by its name. Was it this one, and is it still as it was?
        _refuse_change(file, before, path)
    if isinstance(error, BinaryUnreadable):
        raise _with_kind(error, path, head)
    report = child.result()
    _refuse_other_file(path, report, head)
    return assemble(
        report,
        sha256=sha256,
        size_bytes=before.st_size,
        no_library="" if found.path else found.reason,
    )


def _given(library: Path) -> SystemLibrary:
    if not library.is_file():
        raise UsageError(
            f"{library} is not a file, so it cannot be the library to read binaries with.",
            next_step="Give the path of a libQnnSystem.so.",
        )
    return SystemLibrary(library.absolute(), "given")


def _open(path: Path) -> BinaryIO:
    try:
        # Looked at first: opening a named pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(
                f"{path} is not a file.", next_step="Give the path of a context binary (.bin)."
            )
        return path.open("rb", buffering=0)
    except OSError as error:
        raise UsageError(
            f"Cannot open {path}: {error.strerror}.",
            next_step="Give the path of a context binary (.bin) that you may read.",
        ) from None


def _sha256(file: BinaryIO, path: Path) -> str:
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    try:
        while count := file.readinto(buffer):  # type: ignore[attr-defined]
            digest.update(view[:count])
    except OSError as error:
        raise InfrastructureError(
            f"Reading {path} failed: {error.strerror}.", next_step="Check the disk."
        ) from None
    return digest.hexdigest()


def _refuse_change(file: BinaryIO, before: os.stat_result, path: Path) -> None:
    try:
        same = _identity(os.fstat(file.fileno())) == _identity(path.stat()) == _identity(before)
    except OSError:
        same = False
    if not same:
        raise InfrastructureError(
            f"{path} was changed while it was being read.",
            next_step="Wait until whatever writes it has finished, and try again.",
        )


def _identity(file: os.stat_result) -> tuple[int, ...]:
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _refuse_other_file(path: Path, report: ChildReport, head: bytes) -> None:
    """Without a library nothing has looked at the file's form; then these must speak for it."""
    if report.metadata is not None:
        return
    if head in _OTHER_KINDS or not (report.options["strings"] or report.options["build_ids"]):
        error = BinaryUnreadable(
            f"{path} is no QNN context binary: it holds neither a QNN build id nor an option "
            "string of the HTP compiler.",
            next_step="Give the .bin file that the context binary generator wrote.",
        )
        raise _with_kind(error, path, head)


def _with_kind(error: BinaryUnreadable, path: Path, head: bytes) -> BinaryUnreadable:
    """The same error, saying what the file looks like where that is plain."""
    kind = _OTHER_KINDS.get(head)
    if kind is None and path.suffix == ".onnx":
        kind = "an ONNX model; the context binary of an EPContext model is the .bin file beside it"
    if kind is None:
        return error
    return BinaryUnreadable(f"{error.what} It looks like {kind}.", next_step=error.next_step)
