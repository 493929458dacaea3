"""The manifest ``qnnctx.lock``: which binary belongs to which model and target.

A text for git: one block a pin, in a fixed order, so that its diff tells whether the model under a
test changed. ::

    {
      "schema_version": 1,
      "store": "https://artifacts.example.com/qnn",
      "pins": {
        "digits for QCS6490/v68": {
          "model": "digits",
          "target": {"soc": "QCS6490", "htp_arch": "v68"},
          "sources": {"onnx": {"path": "models/digits.onnx", "sha256": "..."}, ...},
          "input_shapes": {},
          "calibration": null,
          "binary": {"file": "digits_w8a8_v68-0123456789ab.bin", "sha256": "...", ...},
          "provenance": {...}
        }
      }
    }

Paths are relative to the manifest. ``binary.file`` is relative to the store, and null for a binary
that was not published.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.build.pins.lfs import PULL, is_pointer
from pytest_qnnctx.build.pins.store_place import StorePlace, parse_store
from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.model import Provenance, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST_SCHEMA = 1


@dataclass(frozen=True)
class Source:
    """One file of a model: its path relative to the manifest, with slashes, and its sha256."""

    path: str
    sha256: str


@dataclass(frozen=True)
class PinnedBinary:
    """``file`` is the binary's path in the store; None where it was not published."""

    file: str | None
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Pin:
    """One model for one target, and the binary that belongs to it.

    ``sources`` has the roles of :func:`~pytest_qnnctx.build.files.model_files`. ``calibration`` is
    the hash of calibration inputs that came from code; those in files are among the sources.
    """

    model: str
    soc: str
    htp_arch: str
    sources: Mapping[str, Source]
    binary: PinnedBinary
    provenance: Provenance
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    calibration: str | None = None

    @property
    def name(self) -> str:
        """``digits for QCS6490/v68``."""
        return f"{self.model} for {self.soc}/{self.htp_arch}"


@dataclass(frozen=True)
class Manifest:
    """A manifest as read. ``path`` is its file; ``store`` is None where none is named."""

    path: Path
    pins: Mapping[str, Pin] = field(default_factory=dict)
    store: StorePlace | None = None

    @property
    def folder(self) -> Path:
        """What its paths are relative to."""
        return self.path.parent

    def pin_of(self, model: str, target: Target) -> Pin | None:
        """The pin of the model called ``model`` for ``target``."""
        return self.pins.get(f"{model} for {target.soc}/{target.htp_arch}")

    def with_pin(self, pin: Pin) -> Manifest:
        """The same with ``pin`` added, or in place of the one of that name."""
        return replace(self, pins={**self.pins, pin.name: pin})

    def with_store(self, text: str) -> Manifest:
        """The same with another store. Raises UsageError."""
        return replace(self, store=parse_store(text, self.folder, f"{self.path}: store"))


def read_manifest(path: Path) -> Manifest:
    """Read ``path``. Raises UsageError for whatever is wrong with it, by key and pin."""
    from pytest_qnnctx.build.pins.manifest_text import parse

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"there is no manifest {path}",
            next_step="make it: qnnctx build MODEL --board NAME --update-manifest",
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot read the manifest {path}: {error.strerror or error}",
            next_step="correct --qnnctx-manifest",
        ) from None
    if is_pointer(content):
        raise InfrastructureError(
            f"the manifest {path} is itself a Git LFS pointer",
            next_step=f"{PULL}; better keep the manifest out of LFS, so that its diff can be read",
        )
    return parse(content, path)


def write_manifest(manifest: Manifest) -> None:
    """Replace the manifest's file, as a whole. Raises InfrastructureError where that fails."""
    from pytest_qnnctx.build.pins.manifest_text import render

    text = render(manifest)
    target = manifest.path.resolve()  # a link stays a link
    temporary = ""
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
        raise InfrastructureError(
            f"cannot write the manifest {manifest.path}: {error.strerror or error}",
            next_step="check that its directory exists, is writable and has space",
        ) from error


def change_manifest(
    path: Path, change: Callable[[Manifest], Manifest], *, lock_dir: Path
) -> Manifest:
    """Apply ``change`` to the manifest ``path`` (an empty one where there is none), and write it.

    Others that change it at the same time are waited for, by a lock in ``lock_dir``, so that no
    pin is lost. A file whose content stays the same is not written. Raises as
    :func:`read_manifest` and :func:`write_manifest` do.
    """
    with _locked(path, lock_dir):
        there = path.exists()
        before = read_manifest(path) if there else Manifest(path)
        after = change(before)
        if not there or after != before:
            write_manifest(after)
    return after


@contextmanager
def _locked(path: Path, lock_dir: Path) -> Iterator[None]:
    import hashlib

    from filelock import FileLock, Timeout

    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    try:
        lock_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_dir / f"manifest-{name}.lock", timeout=60, fallback_to_soft=False):
            yield
    except Timeout as error:
        raise InfrastructureError(
            f"another process has held the manifest {path} for a minute",
            next_step="find out whether it hangs, and end it",
        ) from error


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current
