"""Whether the files that a manifest pins are still those that it pinned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_qnnctx.build.pins.file_hashes import HashMemory
from pytest_qnnctx.build.pins.lfs import pointed_sha256
from pytest_qnnctx.build.pins.manifest import Manifest, Pin
from pytest_qnnctx.errors import InfrastructureError


@dataclass(frozen=True)
class Drift:
    """One file that is not what a pin says.

    ``kind`` is ``source_changed``, ``source_missing``, ``source_lfs_pointer``, ``binary_changed``,
    ``binary_missing`` or ``binary_lfs_pointer``; ``file`` its path as the manifest has it.
    """

    pin: str
    kind: str
    file: str
    message: str


def check_manifest(
    manifest: Manifest, memory: HashMemory, *, pins: Iterable[Pin] | None = None
) -> list[Drift]:
    """What no longer agrees with ``manifest``, or with some of its ``pins``; empty where all does.

    Binaries are looked at where the store is a directory; nothing is fetched. Raises
    InfrastructureError for a file that is there and cannot be read.
    """
    found: list[Drift] = []
    for pin in manifest.pins.values() if pins is None else pins:
        found.extend(_check(manifest, pin, memory))
    return found


def short(sha256: str) -> str:
    """Enough of a hash to tell it from another."""
    return f"{sha256[:12]}..."


def _check(manifest: Manifest, pin: Pin, memory: HashMemory) -> Iterator[Drift]:
    for role, source in sorted(pin.sources.items()):
        path = manifest.folder / source.path
        if told := _compare(path, source.sha256, memory):
            kind, what = told
            message = f"{pin.name}: {role} {source.path} {what}"
            yield Drift(pin.name, f"source_{kind}", source.path, message)
    file, store = pin.binary.file, manifest.store
    if file is None or store is None or store.directory is None:
        return
    path = store.directory / file
    if told := _compare(path, pin.binary.sha256, memory):
        kind, what = told
        yield Drift(pin.name, f"binary_{kind}", file, f"{pin.name}: binary {path} {what}")


def _compare(path: Path, pinned: str, memory: HashMemory) -> tuple[str, str] | None:
    """How ``path`` differs, as a kind and in words; None where it does not."""
    try:
        now = memory.sha256_of(path)
        if now == pinned:
            return None
        pointed = pointed_sha256(path)
    except (FileNotFoundError, NotADirectoryError):
        return "missing", "is not there"
    except OSError as error:
        raise InfrastructureError(
            f"cannot read '{path}': {error.strerror or error}",
            next_step="check its permissions, and the disk",
        ) from error
    if pointed is None:
        return "changed", f"changed: {short(pinned)} pinned, {short(now)} now"
    if pointed == pinned:
        return "lfs_pointer", "is a Git LFS pointer to what is pinned: run git lfs pull"
    return "changed", (
        f"changed: {short(pinned)} pinned, {short(pointed)} now (by its Git LFS pointer, which was "
        "not pulled)"
    )
