"""Find the option strings in a file of any size, in little memory and at little cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pytest_qnnctx.binary import option_string as text

#: ``at(offset, count)`` gives that part of the file, shorter only where the file ends.
At: TypeAlias = Callable[[int, int], bytes]

# Measured: reads of 64 KiB stay in the cache and take a fifth of the time of larger ones.
CHUNK_BYTES = 64 * 1024 - 16
#: Where the metadata stands, and the build id in it. Here the search is thorough.
HEAD_BYTES = 1024 * 1024
#: So many candidates are no compiler's work; what was found until then is not the whole truth.
MAX_CANDIDATES = 10_000

_OVERLAP = len(text.ANCHOR) - 1


def scan_options(at: At, size: int, *, max_candidates: int = MAX_CANDIDATES) -> dict[str, Any]:
    """All option strings in a file of ``size`` bytes.

    ``strings`` is their number, ``values`` the distinct values by key, ``build_ids`` those found
    beside them and in the head, ``complete`` is False where the search was given up after
    ``max_candidates`` places with ``arch=`` in them.

    Past the head only places that look like a long text are searched, which costs a tenth. The
    strings of one file are of like length, so that misses none, unless those in the head are
    themselves short, or there are none: then all is searched.
    """
    quick = _Findings(max_candidates)
    quick.collect(at, size, _anchors(at, size, thorough=False))
    if quick.strings and quick.shortest >= 2 * text.LONG_RUN:
        found = quick
    else:
        found = _Findings(max_candidates)
        found.collect(at, size, _anchors(at, size, thorough=True))
    return {
        "strings": found.strings,
        "values": found.values,
        "build_ids": sorted(found.build_ids | text.find_build_ids(at(0, HEAD_BYTES))),
        "complete": found.complete,
    }


class _Findings:
    def __init__(self, max_candidates: int) -> None:
        self._left = max_candidates
        self.strings = 0
        self.shortest = 0
        self.values: dict[str, list[str]] = {key: [] for key in text.KEYS}
        self.build_ids: set[str] = set()
        self.complete = True

    def collect(self, at: At, size: int, anchors: Iterator[int]) -> None:
        read_until = 0
        for anchor in anchors:
            if anchor < read_until:
                continue
            if self._left == 0:
                self.complete = False
                return
            self._left -= 1
            start = max(0, anchor - text.REACH)
            window = at(start, anchor - start + text.REACH)
            run, end = text.option_run(
                window,
                anchor - start,
                starts_file=start == 0,
                ends_file=start + len(window) >= size,
            )
            read_until = start + end
            self._take(run, window)

    def _take(self, run: bytes, window: bytes) -> None:
        options = text.parse_options(run)
        if options is None:
            return
        self.shortest = min(self.shortest, len(run)) if self.strings else len(run)
        self.strings += 1
        self.build_ids |= text.find_build_ids(window)
        for key, found in options.items():
            self.values[key] += [value for value in found if value not in self.values[key]]


def _anchors(at: At, size: int, *, thorough: bool) -> Iterator[int]:
    """Offsets of ``arch=``, ascending, each once."""
    done = 0  # every anchor before this offset has been given
    for start in range(0, size, CHUNK_BYTES):
        begin, window = start, at(start, CHUNK_BYTES + _OVERLAP)
        if not thorough and start >= HEAD_BYTES:
            if not text.may_hold_text(window):
                continue
            # The text may begin before this chunk and end after it.
            begin = max(done, start - text.REACH)
            window = at(begin, start - begin + CHUNK_BYTES + text.REACH)
        for position in text.find_all(window):
            if begin + position >= done:
                yield begin + position
        done = max(done, begin + len(window) - _OVERLAP)
