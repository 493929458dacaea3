"""Streams whose content is between two marks, and what is kept of a long output."""

from __future__ import annotations

from collections.abc import Callable

from pytest_qnnctx.hosts.remote_shell import Marks
from pytest_qnnctx.process import KEPT_BYTES

_KEPT_NOISE = 4096


class FramedStream:
    """Takes a stream in pieces, and hands on what is between the marks.

    ``head`` is the rest of the first mark's line and ``code`` that of the last's; each is None
    until it has come. ``noise`` is what came before the first.
    """

    def __init__(self, marks: Marks, take: Callable[[bytes], object]) -> None:
        self._begin, self._end = marks.begin.encode(), marks.end.encode()
        self._take = take
        self._held = b""
        self.noise = b""
        self.head: str | None = None
        self.code: str | None = None

    def feed(self, data: bytes) -> None:
        """The next piece. What comes after the last mark is dropped."""
        if self.code is not None:
            return
        self._held += data
        if self.head is None and not self._find_head():
            return
        at = self._held.find(self._end)
        if at < 0:
            ready = self._without_beginning_of_end()
            if ready:
                self._take(self._held[:ready])
                self._held = self._held[ready:]
            return
        if at > 0:
            self._take(self._held[:at])
            self._held = self._held[at:]
        line, newline, _ = self._held.partition(b"\n")
        if newline:
            self.code = line.removeprefix(self._end).decode(errors="replace")
            self._held = b""

    def _without_beginning_of_end(self) -> int:
        """How many bytes can be handed on: the last few may be the beginning of the mark."""
        at = max(len(self._held) - len(self._end) + 1, 0)
        while (at := self._held.find(self._end[:1], at)) >= 0:
            if self._end.startswith(self._held[at:]):
                return at
            at += 1
        return len(self._held)

    def _find_head(self) -> bool:
        before, mark, after = self._held.partition(self._begin)
        line, newline, rest = after.partition(b"\n")
        if not newline:
            if not mark:
                keep = _KEPT_NOISE + len(self._begin)
                self._held = self._held[-keep:]
                self.noise = self._held[-_KEPT_NOISE:]
            return False
        self.noise = before[-_KEPT_NOISE:]
        self.head = line.decode(errors="replace")
        self._held = rest
        return True


class KeptOutput:
    """The head and the tail of an output, together :data:`~pytest_qnnctx.process.KEPT_BYTES`."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """The next piece."""
        half = KEPT_BYTES // 2
        room = max(half - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * half:
            self._dropped += len(self._tail) - half
            del self._tail[:-half]

    def text(self) -> str:
        """All of it, or both ends with a line between them that says how much is left out."""
        gap = f"\n[... {self._dropped} bytes left out ...]\n".encode() if self._dropped else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode(errors="replace")
