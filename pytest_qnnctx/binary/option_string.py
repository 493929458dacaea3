"""The compiler's option string, which every HTP context binary carries as plain text.

It is a run of ``key=value;`` items, about 9 KB long, one or two per graph, anywhere in the file::

    O=3;seq_sf_algo_selector=tmlh;08=dp; ... soc_type=QCS6490;arch=68; ... vtcm_size=2097152; ...

Seen so in files of QNN 2.47 and 2.51; those of 2.22 have ``arch`` and no ``soc_type``. A key that
shares its beginning with an earlier one is shortened to two digits and the rest (``02size=``), so
an item counts only when its *whole* key is the one looked for.

Everything here is a pure function on bytes; no library is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Found in every option string known; the search for it is what reading a large file costs.
ANCHOR = b"arch="
#: The keys that are read.
KEYS = ("soc_type", "arch", "vtcm_size")
#: How far an option string may reach on either side of its ``arch=``; real ones need 10 KB.
REACH = 64 * 1024
#: A printable run of this length is seen by :func:`may_hold_text`.
LONG_RUN = 1024
#: A run with fewer items is a name or a sentence that happens to hold ``arch=``.
MIN_ITEMS = 8

_PRINTABLE_MARKS = bytes(0x20 <= byte <= 0x7E for byte in range(256))
_SAMPLE_STEP = 64
_TEXT_SAMPLES = b"\1" * (LONG_RUN // _SAMPLE_STEP)
_ITEM = re.compile(rb"([0-9A-Za-z_]+)=([^;]*)")
# Both places in which the build id stands end it with a zero byte; in a log or a script it is
# followed by something else. "Vr" is the tag of the record before an option string.
_BUILD_ID = re.compile(rb"(?:[\x00-\x1f]|Vr)v(\d+\.\d+\.\d+\.\d+)\x00")


def find_all(data: bytes, needle: bytes = ANCHOR) -> Iterator[int]:
    """Offsets of ``needle`` in ``data``, ascending, overlaps included."""
    at = data.find(needle)
    while at >= 0:
        yield at
        at = data.find(needle, at + 1)


def may_hold_text(data: bytes) -> bool:
    """False only where ``data`` holds no printable run of :data:`LONG_RUN` bytes.

    Looks at one byte in 64: a tenth of the cost of a search.
    """
    return _TEXT_SAMPLES in data[::_SAMPLE_STEP].translate(_PRINTABLE_MARKS)


def option_run(window: bytes, at: int, *, starts_file: bool, ends_file: bool) -> tuple[bytes, int]:
    """The printable run around offset ``at`` of ``window``, and the offset at which it ends.

    Where the run reaches an edge of the window that is no edge of the file, the item cut there is
    left out: half of ``min_arch=68`` reads ``arch=68``.
    """
    gaps = window.translate(_PRINTABLE_MARKS)
    begin = gaps.rfind(b"\0", 0, at) + 1
    end = gaps.find(b"\0", at)
    cut_before = begin == 0 and not starts_file
    cut_after = end < 0 and not ends_file
    end = len(window) if end < 0 else end
    run = window[begin:end]
    if cut_before:
        run = run.partition(b";")[2]
    if cut_after:
        run = run.rpartition(b";")[0]
    return run, end


def parse_options(run: bytes) -> dict[str, tuple[str, ...]] | None:
    """The values of :data:`KEYS` in one option string, by whole key; None where it is none.

    A key that is not there is left out; one that is there twice has each distinct value.
    """
    items = [match for item in run.split(b";") if (match := _ITEM.fullmatch(item))]
    if len(items) < MIN_ITEMS:
        return None
    found: dict[str, tuple[str, ...]] = {}
    for match in items:
        key, value = match[1].decode("ascii"), match[2].decode("ascii")
        if key in KEYS and value not in found.get(key, ()):
            found[key] = (*found.get(key, ()), value)
    return found if "arch" in found else None


def find_build_ids(window: bytes) -> set[str]:
    """Build ids of QNN ("2.51.0.260929181845", without the leading "v") stored in ``window``."""
    return {match[1].decode("ascii") for match in _BUILD_ID.finditer(window)}
