"""The lease of a board among the processes of this host.

One lock file a board, held by ``flock``: the kernel frees it when its holder dies, however it dies.
Beside it a note says who holds it; the note is for messages only and decides nothing. Hosts that
share a board agree by a lease on the board itself.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from filelock import BaseFileLock

_POLL_S = 0.1


@dataclass(frozen=True)
class Holder:
    """Who holds a lease. ``since`` is UTC in ISO 8601, ``what`` the note given with the request."""

    pid: int
    host: str
    since: str
    what: str

    def __str__(self) -> str:
        note = f" ({self.what})" if self.what else ""
        return f"process {self.pid} on {self.host} since {self.since}{note}"


class Lease:
    """The right to ``board`` until it is closed or this process ends.

    ``waited_s`` says how long it took to get. A shared board's lease holds nothing.
    """

    def __init__(
        self, board: Board, waited_s: float, lock: BaseFileLock | None, note: Path | None
    ) -> None:
        self.board = board
        self.waited_s = waited_s
        self._lock = lock
        self._note = note

    def close(self) -> None:
        """Give the board back. Safe to call twice."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if self._note is not None:
                self._note.unlink(missing_ok=True)
        finally:
            lock.release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def acquire(board: Board, *, lock_dir: Path, timeout_s: float, note: str = "") -> Lease:
    """Lease ``board``, waiting at most ``timeout_s``. See :func:`acquire_any`."""
    return acquire_any((board,), lock_dir=lock_dir, timeout_s=timeout_s, note=note)


def acquire_any(
    boards: Sequence[Board], *, lock_dir: Path, timeout_s: float, note: str = ""
) -> Lease:
    """Lease the first of ``boards`` that is or becomes free.

    ``lock_dir`` must be the same for all who are to exclude each other. ``note`` is what others are
    shown while they wait. Raises InfrastructureError that names each holder after ``timeout_s``
    seconds (0: tries once), or where the lock files cannot be written.
    """
    if not boards:
        raise UsageError("there is no board to lease", next_step="select at least one board")
    started = time.monotonic()
    while True:
        for board in boards:
            lease = _try(board, lock_dir, note, started)
            if lease is not None:
                return lease
        left = started + timeout_s - time.monotonic()
        if not left > 0:
            raise _all_held(boards, lock_dir, timeout_s)
        time.sleep(min(_POLL_S, left))


def read_holder(board: Board, lock_dir: Path) -> Holder | None:
    """Who said last that they hold ``board``; None where nobody does, or they are dead."""
    try:
        data = json.loads(_note_path(board, lock_dir).read_text("utf-8"))
        holder = Holder(int(data["pid"]), str(data["host"]), str(data["since"]), str(data["what"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if holder.pid <= 0 or (holder.host == platform.node() and not _alive(holder.pid)):
        return None
    return holder


def _try(board: Board, lock_dir: Path, note: str, started: float) -> Lease | None:
    from filelock import FileLock, Timeout

    if board.shared:
        return Lease(board, time.monotonic() - started, None, None)
    try:
        lock_dir.mkdir(parents=True, exist_ok=True)
        # Not thread_local: a session may be closed by another thread than the one that opened it.
        lock = FileLock(lock_dir / f"{board.name}.lock", thread_local=False, fallback_to_soft=False)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except (OSError, NotImplementedError) as error:
        raise _unusable(board, lock_dir, error) from error
    path = _note_path(board, lock_dir)
    try:
        _write_note(path, note)
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError):
            raise _unusable(board, lock_dir, error) from error
        raise
    return Lease(board, time.monotonic() - started, lock, path)


def _note_path(board: Board, lock_dir: Path) -> Path:
    return lock_dir / f"{board.name}.holder.json"


def _write_note(path: Path, what: str) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = Holder(os.getpid(), platform.node(), since, what)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(holder), file)
        Path(name).chmod(0o644)  # others on this host are to read it
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's
    return True


def _all_held(boards: Sequence[Board], lock_dir: Path, timeout_s: float) -> InfrastructureError:
    held = []
    for board in boards:
        holder = read_holder(board, lock_dir)
        held.append(f"{board.name}: held by {holder or 'a process that left no note'}")
    return InfrastructureError(
        f"no lease within {timeout_s:g} s: {'; '.join(held)}",
        next_step="wait for the holder or end it, select more boards, or raise "
        "--qnnctx-lease-timeout",
    )


def _unusable(board: Board, lock_dir: Path, error: Exception) -> InfrastructureError:
    reason = getattr(error, "strerror", None) or error
    return InfrastructureError(
        f"board {board.name} cannot be leased: its lock in '{lock_dir}' is unusable: {reason}",
        next_step="make the directory writable for this user, on a local disk",
    )
