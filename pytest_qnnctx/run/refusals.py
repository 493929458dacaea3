"""Why a runtime refused a context binary, read from its log: pure functions on text.

Codes are from the vendor's public API headers; what they turned out to be, from public bug
reports. It matters whose fault it is: the binary's, or the board's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CODE = re.compile(
    r"\b(?:err(?:or)?(?:\s+code)?|failed(?: to [a-z ]+)?|status)\b"
    r"\s*[:=]?\s*(0x[0-9a-f]{3,8}|\d{4,5})\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Refusal:
    """``board_at_fault`` tells the two families of error apart."""

    board_at_fault: bool
    reason: str
    next_step: str


_DEVICE = Refusal(
    True,
    "the HTP could not be opened: its skel library was not found, or the cDSP is down or busy",
    "check ADSP_LIBRARY_PATH (a list separated by ';') and the board's cDSP, or reboot the board",
)
_RUNTIME_MIXED = Refusal(
    True,
    "the board's QNN libraries are not all of one version (stub and skel differ)",
    "install the libraries of one QNN version on the board",
)
_MEMORY = Refusal(
    True,
    "the board has no memory or no process domain left for this context",
    "see which other contexts are loaded there, free them or reboot the board",
)
_FUTURE = Refusal(
    False,
    "it was built with a newer QNN than the board's runtime can read",
    "build it with the board's QNN version, or update the board",
)
_TARGET = Refusal(
    False,
    "the runtime cannot use it: it was built for another target or with a newer QNN",
    "compare its architecture, SoC and QNN version with the board's (qnnctx inspect)",
)
_DAMAGED = Refusal(
    False,
    "it is not a context binary, or a damaged one",
    "build it again; compare its sha256 with the one that was recorded",
)
_NO_GRAPH = Refusal(
    False,
    "it holds no graph of that name",
    "look at its graphs with qnnctx inspect",
)
_UNKNOWN = Refusal(False, "the runtime gave no reason that is known here", "read the log below")

#: What is said plainly comes first; codes after it, since one fault sets off several.
_TEXTS: tuple[tuple[str, Refusal], ...] = (
    (r"can't read future blob", _FUTURE),
    (r"context node name not exists", _NO_GRAPH),
    (r"(skel|stub) lib id mismatch", _RUNTIME_MIXED),
    (r"unable to load remote symbols|failed to load skel|qnn_open failed", _DEVICE),
    (r"0x80000(406|600|416)|ssr detected", _DEVICE),
    (r"fastrpc memory map .* failed|failed to map weights|failed to find available pd", _MEMORY),
    (r"failed to get context binary info", _DAMAGED),
    (r"mem_alloc\b", _MEMORY),
)
_CODES: tuple[tuple[frozenset[int], Refusal], ...] = (
    (frozenset({1008}), _RUNTIME_MIXED),
    (frozenset({14000, 14001, 14002, 14003, 4000, 1003, 1007, 1009, 1011}), _DEVICE),
    (frozenset({1002, 1010, 8003}), _MEMORY),
    (frozenset({5004}), _FUTURE),
    (frozenset({30001, 30010}), _DAMAGED),
    (frozenset({5000, 5005, 5008, 5011}), _TARGET),
)


def why_refused(log: str) -> Refusal:
    """The most telling cause in ``log``; with none, the binary is held to be at fault."""
    feature = re.search(
        r"request feature (\w[\w ]*?) with value (\d+) (?:un|not )supported", log, re.IGNORECASE
    )
    if feature:
        return Refusal(
            False,
            f"it was built for {feature[1]} {feature[2]}, which this part does not have",
            "build it for the board's own target",
        )
    for pattern, refusal in _TEXTS:
        if re.search(pattern, log, re.IGNORECASE):
            return refusal
    codes = {int(code, 0) for code in _CODE.findall(log)}
    for known, refusal in _CODES:
        hit = codes & known
        if hit:
            return Refusal(
                refusal.board_at_fault,
                f"{refusal.reason} (error {min(hit)})",
                refusal.next_step,
            )
    return _UNKNOWN
