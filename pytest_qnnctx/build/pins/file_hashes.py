"""The sha256 of files, remembered by what the file system says of them.

A hash is given from memory only where device, inode, size, modification time and change time are
all what they were when the file was read. The kernel sets the change time at every write and at
every change of the other times, so that ``touch -d`` does not deceive it. A file that was changed
just before it was read is not remembered: a second change within the clock's step would not show
(git calls such an index entry racy).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from pathlib import Path
from types import TracebackType

from pytest_qnnctx.build.cache_dir import make_cache_dir
from pytest_qnnctx.errors import InfrastructureError

VERSION = 1
#: As many files are remembered; beyond that those that were read first are forgotten.
MOST_FILES = 20_000
#: A file whose times are closer than this (ns) to its reading is read again next time.
RACY_NS = 2_000_000_000
_SHA256 = re.compile(r"[0-9a-f]{64}")

#: What the file system says of a file: device, inode, size, mtime and ctime in ns.
Identity = tuple[int, int, int, int, int]


class HashMemory:
    """Remembers hashes in the file ``path``; use it in a ``with`` block, or call :meth:`save`.

    Any number of processes may share the file: it is replaced as a whole, and the last writer
    keeps what it finds there. One that is damaged or of another version is ignored and replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = _load(path)
        self._learnt: dict[str, tuple[Identity, str]] = {}

    def sha256_of(self, file: Path) -> str:
        """The sha256 of ``file`` in hex. Raises ``OSError`` where it cannot be read."""
        place = str(file.absolute())
        identity = _identity(file.stat())
        known = self._known.get(place)
        if known is not None and known[0] == identity:
            return known[1]
        return self._read(file, place)

    def save(self) -> None:
        """Write what was learnt. A directory that cannot be written is no error: files are read."""
        if not self._learnt:
            return
        merged = _load(self.path)
        for place, entry in self._learnt.items():
            merged.pop(place, None)
            merged[place] = entry  # the newest last
        kept = list(merged.items())[-MOST_FILES:]
        text = json.dumps(
            {"version": VERSION, "files": {place: [*of, sha] for place, (of, sha) in kept}},
            separators=(",", ":"),
        )
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            make_cache_dir(self.path.parent)
            with temporary.open("w") as written:
                written.write(text)
                written.flush()
                os.fsync(written.fileno())
            temporary.replace(self.path)
            self._learnt.clear()
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _read(self, file: Path, place: str) -> str:
        for _ in range(3):
            began = time.time_ns()
            with file.open("rb") as opened:
                before = _identity(os.fstat(opened.fileno()))
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
                after = _identity(os.fstat(opened.fileno()))
            if before == after:
                break
        else:
            raise InfrastructureError(
                f"{file} changed each time while it was read",
                next_step="wait until whatever writes it has ended",
            )
        if max(after[3:]) < began - RACY_NS:
            self._known[place] = self._learnt[place] = (after, sha256)
        return sha256

    def __enter__(self) -> HashMemory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.save()


def _identity(found: os.stat_result) -> Identity:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _load(path: Path) -> dict[str, tuple[Identity, str]]:
    try:
        data = json.loads(path.read_text())
        if data["version"] != VERSION:
            return {}
        return dict(_entry(place, values) for place, values in data["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _entry(place: str, values: list[object]) -> tuple[str, tuple[Identity, str]]:
    """Raises ValueError or TypeError for what this module did not write."""
    device, inode, size, mtime, ctime, sha256 = values
    identity = (device, inode, size, mtime, ctime)
    if not all(type(number) is int for number in identity):
        raise TypeError("an identity is five whole numbers")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError("no sha256")
    return place, (identity, sha256)  # type: ignore[return-value]
