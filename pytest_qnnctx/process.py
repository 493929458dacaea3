"""Child processes with a time limit: how everything that may hang, abort or print a lot is run."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

#: Of each stream this many bytes are kept: half from its beginning, half from its end.
KEPT_BYTES = 8 * 1024 * 1024
_TICK_S = 0.5


#: Signals by which a process breaks down by itself; any other was sent to it from outside.
CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)


@dataclass(frozen=True)
class ChildResult:
    """A finished child. ``returncode`` is -N where signal N ended it, as in :mod:`subprocess`.

    ``timed_out`` is True where it was killed, with its whole process group, at its time limit.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False

    @property
    def ended_from_outside(self) -> bool:
        """Whether a time limit or somebody's signal ended it: no fault of what it worked on."""
        return self.timed_out or (self.returncode < 0 and -self.returncode not in CRASHES)

    @property
    def ending(self) -> str:
        """How it ended, for people: "exit 3", "killed by SIGABRT", "time limit of 20 s"."""
        if self.timed_out:
            return f"it did not end within its time limit ({self.seconds:.0f} s)"
        if self.returncode < 0:
            try:
                return f"it was killed by {signal.Signals(-self.returncode).name}"
            except ValueError:
                return f"it was killed by signal {-self.returncode}"
        return f"exit {self.returncode}"


def die_with_parent() -> None:
    """To be called first in a child's ``main``: it must not outlive a parent that is killed."""
    import ctypes

    with suppress(OSError, AttributeError):  # Linux only; elsewhere the time limit must do
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run_child(
    argv: Sequence[str],
    *,
    time_limit_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    on_tick: Callable[[float], None] | None = None,
) -> ChildResult:
    """Run ``argv`` in a process group of its own; kill the group at the limit or on any exception.

    ``env`` is added to this process's. ``on_tick`` is called about twice a second with the seconds
    gone. Both streams are drained at once, so no child can block on a full pipe. Raises
    ``OSError`` where ``argv`` cannot be started.
    """
    started = time.monotonic()
    with _held_signals() as deliver:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env} if env else None,
            cwd=cwd,
            start_new_session=True,
        )
        timed_out = False
        try:
            assert child.stdout is not None
            assert child.stderr is not None
            streams = [_Drain(child.stdout), _Drain(child.stderr)]
            timed_out = not _wait(child.pid, started + time_limit_s, started, deliver, on_tick)
        finally:
            _kill_group(child)
    texts = [stream.text() for stream in streams]
    return ChildResult(
        tuple(argv),
        child.returncode,
        texts[0],
        texts[1],
        time.monotonic() - started,
        timed_out,
    )


@contextmanager
def _held_signals() -> Iterator[Callable[[], None]]:
    """Keep what signals raise (KeyboardInterrupt ...) back, until it is asked for or at the end.

    Raised between a child's start and the code that ends it, or within that code, it would leave
    the child running. Gives a function that delivers what has come. Python runs handlers in the
    main thread alone, so elsewhere there is nothing to hold.
    """
    came: list[tuple[Callable[..., object], int, FrameType | None]] = []

    def deliver() -> None:
        while came:
            handler, number, frame = came.pop(0)
            handler(number, frame)

    before: dict[int, Callable[..., object]] = {}
    if threading.current_thread() is threading.main_thread():
        for held in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            number = int(held)
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
    try:
        for number in before:
            signal.signal(number, lambda n, frame: came.append((before[n], n, frame)))
        yield deliver
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
        deliver()


def _wait(
    pid: int,
    deadline: float,
    started: float,
    deliver: Callable[[], None],
    on_tick: Callable[[float], None] | None,
) -> bool:
    """Wait until the child has ended (True) or the deadline has come (False).

    The child is left as a zombie: as long as it is not reaped, its process group's number cannot
    be given to somebody else, and the group can be killed safely.
    """
    pause, next_tick = 0.001, started + _TICK_S
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        deliver()
        now = time.monotonic()
        if now >= deadline:
            return False
        if on_tick and now >= next_tick:
            on_tick(now - started)
            next_tick = now + _TICK_S
        time.sleep(min(pause, max(deadline - now, 0)))
        pause = min(pause * 2, 0.02)
    return True


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it left running; a grandchild would hold the pipes open."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


class _Drain:
    """Reads a stream to its end in a thread, keeping the head and the tail of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        half = KEPT_BYTES // 2
        with self._stream:
            while chunk := os.read(self._stream.fileno(), 65536):
                room = half - len(self._head)
                self._head += chunk[: max(room, 0)]
                self._tail += chunk[max(room, 0) :]
                if len(self._tail) > 2 * half:
                    self._dropped += len(self._tail) - half
                    del self._tail[:-half]

    def text(self) -> str:
        self._thread.join(10)
        gap = f"\n[... {self._dropped} bytes left out ...]\n".encode() if self._dropped else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode(errors="replace")
