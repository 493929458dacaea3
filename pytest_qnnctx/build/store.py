"""The store: binaries on disk by content key, each built once and never half-written.

::

    <root>/artifacts/<key>/     digits_w8a8_v68.bin, provenance.json, quantized.onnx, build.log
    <root>/building/<key>.<random>/   a build at work; swept by the next builder of that key
    <root>/locks/<key>.lock     held while that key is built
    <root>/by_source/<source key>/<key>   empty: which artifacts were built of the same sources

An entry appears by one rename, so that it is whole or absent. The lock is ``flock``: the kernel
frees it when its holder dies, however it dies.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.build.content_key import file_sha256
from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.model import Artifact, Provenance

if TYPE_CHECKING:
    from collections.abc import Iterator

PROVENANCE_FILE = "provenance.json"
QUANTIZED_FILE = "quantized.onnx"
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def binary_name(model: str, quantization: str, htp_arch: str) -> str:
    """The file name of a binary: ``classifier_w8a8_v68.bin``."""
    stem = _UNSAFE.sub("_", model).strip("._")[:100] or "model"
    return f"{stem}_{quantization}_{htp_arch}.bin"


class Store:
    """A directory of artifacts, safe for any number of processes at once."""

    def __init__(self, root: Path, *, lock_timeout_s: float = 3600.0) -> None:
        self.root = root
        self._lock_timeout_s = lock_timeout_s

    def find(self, key: str) -> Artifact | None:
        """The whole, unchanged artifact of ``key``, or None.

        The binary is hashed again: one that was damaged or altered counts as absent.
        """
        entry = self._entry(key)
        try:
            data = json.loads((entry / PROVENANCE_FILE).read_text())
            provenance = Provenance.from_json(data)
            binary = entry / binary_name(
                provenance.model, provenance.quantization, str(provenance.target["htp_arch"])
            )
            if provenance.key != key:
                raise ValueError("the entry is another model's")
            if file_sha256(binary) != provenance.sha256:
                raise ValueError("the binary's bytes are not those that were built")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        quantized = entry / QUANTIZED_FILE
        return Artifact(
            binary,
            provenance.sha256,
            provenance.size_bytes,
            provenance,
            quantized if quantized.exists() else None,
        )

    def get_or_build(
        self, key: str, build: Callable[[Path], None], *, on_wait: Callable[[], None] | None = None
    ) -> Artifact:
        """The artifact of ``key``; ``build`` fills a directory with it where there is none.

        ``build`` must leave the binary and ``provenance.json`` in the directory that it is given.
        What it raises passes through, and nothing of it is kept. Another process that builds the
        same key is waited for (``on_wait`` is called once). Raises InfrastructureError where the
        store cannot be written or the wait is too long.
        """
        found = self.find(key)
        if found is not None:
            return found
        with self._locked(key, on_wait):
            found = self.find(key)
            if found is not None:
                return found
            self._sweep(key)
            shutil.rmtree(self._entry(key), ignore_errors=True)  # there, but damaged
            workdir = self._new_workdir(key)
            try:
                build(workdir)
                self._commit(workdir, self._entry(key))
            finally:
                shutil.rmtree(workdir, ignore_errors=True)
        found = self.find(key)
        if found is None:
            raise InfrastructureError(
                f"the store '{self.root}' lost what was just built for key {key[:12]}",
                next_step="check the disk, or choose another directory with --qnnctx-cache-dir",
            )
        return found

    def note_source(self, source: str, key: str) -> None:
        """Remember that ``key`` was built of ``source``. Raises InfrastructureError."""
        note = self.root / "by_source" / source / key
        try:
            if not note.exists():
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()
        except OSError as error:
            raise self._unwritable(error) from error

    def of_source(self, source: str) -> list[Artifact]:
        """The whole artifacts that were built of ``source``, by whichever toolchain."""
        notes = self.root / "by_source" / source
        keys = sorted(note.name for note in notes.iterdir()) if notes.is_dir() else []
        return [artifact for artifact in map(self.find, keys) if artifact is not None]

    def with_sha256(self, sha256: str) -> Artifact | None:
        """A whole artifact whose binary is of that hash, whatever it was built of; None if none.

        One that has the quantized model beside it is taken first.
        """
        found: Artifact | None = None
        artifacts = self.root / "artifacts"
        for entry in sorted(artifacts.iterdir()) if artifacts.is_dir() else ():
            try:
                if sha256 not in (entry / PROVENANCE_FILE).read_text():
                    continue  # cheaper than hashing each binary
            except (OSError, ValueError):
                continue
            artifact = self.find(entry.name)
            if artifact is not None and artifact.sha256 == sha256:
                found = artifact if found is None or artifact.quantized_model else found
        return found

    def _entry(self, key: str) -> Path:
        return self.root / "artifacts" / key

    def _new_workdir(self, key: str) -> Path:
        building = self.root / "building"
        try:
            building.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f"{key}.", dir=building))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError | NotImplementedError) -> InfrastructureError:
        return InfrastructureError(
            f"the store '{self.root}' cannot be written: {getattr(error, 'strerror', '') or error}",
            next_step="free some space or choose another directory with --qnnctx-cache-dir",
        )

    def _commit(self, workdir: Path, entry: Path) -> None:
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            for path in workdir.iterdir():
                _sync(path)
            _sync(workdir)
            workdir.rename(entry)
            _sync(entry.parent)
        except OSError as error:
            raise self._unwritable(error) from error

    def _sweep(self, key: str) -> None:
        """Remove what a killed build of this key left; its lock is ours, so it is dead."""
        for left in (self.root / "building").glob(f"{key}.*"):
            shutil.rmtree(left, ignore_errors=True)

    @contextmanager
    def _locked(self, key: str, on_wait: Callable[[], None] | None) -> Iterator[None]:
        from filelock import FileLock, Timeout

        locks = self.root / "locks"
        try:
            locks.mkdir(parents=True, exist_ok=True)
            lock = FileLock(locks / f"{key}.lock", fallback_to_soft=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if on_wait:
                    on_wait()
                lock.acquire(timeout=self._lock_timeout_s)
        except Timeout as error:
            raise InfrastructureError(
                f"another process has held the build of key {key[:12]} in '{self.root}' for more "
                f"than {self._lock_timeout_s:.0f} s",
                next_step="find out whether it hangs, and end it",
            ) from error
        except (OSError, NotImplementedError) as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            lock.release()


def _sync(path: Path) -> None:
    """Bring a file or directory to the disk: a rename must not outlive its content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
