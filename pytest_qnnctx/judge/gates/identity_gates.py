"""Gates on identity: is this binary meant for this target, this board and its runtime?

They are always on, and judged before anything is put on the board: the emulator runs a binary of
another architecture as if nothing were wrong (measured), a board refuses it as if it were damaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_qnnctx.judge.gates.answer import Answer, listed, not_taken, on_emulator
from pytest_qnnctx.judge.gates.arguments import nothing
from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.verdict import Verdict
from pytest_qnnctx.parts import find_part

Limits = Mapping[str, Any]


class HtpArch:
    """The binary's HTP architecture is the target's and the board's."""

    name = "htp_arch"
    signature = "htp_arch"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The binary and the board."""
        return frozenset({Need.BINARY, Need.BOARD})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """Compare the three; a known difference fails, a missing one is inconclusive."""
        wanted = measurements.target.htp_arch
        answer = Answer(self.name, wanted, "", on_emulator(measurements))
        binary, board = measurements.binary, measurements.board
        if binary is None:
            return answer.unknown(not_taken(measurements, Need.BINARY, "binary"))
        found = binary.htp_arch
        if found is None:
            why = binary.unknown.get("htp_arch", "the binary does not say")
            return answer.unknown(f"architecture of the binary unknown: {why}")
        on_board = board.htp_arch if board is not None else None
        seen = {"binary": found, "target": wanted, "board": on_board}
        if found.lower() != wanted.lower():
            return answer.fails(found, f"binary is for {found}, target is {wanted}", **seen)
        if board is None:
            return answer.unknown(not_taken(measurements, Need.BOARD, "board"), found, **seen)
        if on_board is None:
            return answer.unknown("the board's architecture could not be read", found, **seen)
        if found.lower() != on_board.lower():
            return answer.fails(found, f"binary is for {found}, the board is {on_board}", **seen)
        return answer.passes(found, f"binary, target and board are all {found}", **seen)


class Soc:
    """The binary's SoC is the target's and the board's; names of one part count as equal."""

    name = "soc"
    signature = "soc"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The binary and the board."""
        return frozenset({Need.BINARY, Need.BOARD})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """Compare the three by part; a binary that names none (QNN 2.22) is inconclusive."""
        wanted = measurements.target.soc
        answer = Answer(self.name, wanted, "", on_emulator(measurements))
        binary, board = measurements.binary, measurements.board
        if binary is None:
            return answer.unknown(not_taken(measurements, Need.BINARY, "binary"))
        found = binary.soc
        if found is None:
            why = binary.unknown.get("soc", "it names none")
            return answer.unknown(f"SoC of the binary unknown ({why}); rebuild with a newer QNN")
        on_board = board.soc if board is not None else None
        seen = {"binary": found, "target": wanted, "board": on_board}
        if _part_name(found) != _part_name(wanted):
            return answer.fails(found, f"binary is for {found}, target is {wanted}", **seen)
        if board is None:
            return answer.unknown(not_taken(measurements, Need.BOARD, "board"), found, **seen)
        if on_board is None:
            return answer.unknown("the board's SoC could not be read", found, **seen)
        if _part_name(found) != _part_name(on_board):
            return answer.fails(found, f"binary is for {found}, the board is {on_board}", **seen)
        names = listed(dict.fromkeys(name.upper() for name in (found, wanted, on_board)))
        same = "" if "," not in names else " (one part)"
        return answer.passes(found, f"binary, target and board are {names}{same}", **seen)


#: The rule of versions, as the verdict tells it, and where it comes from.
RUNTIME_RULE = "a runtime reads binaries of its own and of older QNN versions (major.minor)"
RUNTIME_SOURCE = (
    "measured: a binary of 2.47 loads in 2.51; public reports of the other way: a refusal that "
    'names the two blob versions ("Can\'t read future blob"), and error 5000 after a change of the '
    "SDK"
)


class Runtime:
    """The board's QNN runtime is not older than the QNN that made the binary.

    The rule: a runtime of the same or a newer version (major and minor) may read the binary, as a
    binary of 2.47 loads in 2.51 (measured). The other way is refused by the device in public
    reports ("Can't read future blob", or error 5000 after a change of the SDK); it depends on the
    blob's version, which the files at hand do not tell before loading, and is not risked. Another
    patch or build of one minor version is allowed, and noted. Judged before anything is staged.
    """

    name = "runtime"
    signature = "runtime"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The binary and the board."""
        return frozenset({Need.BINARY, Need.BOARD})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """Compare (major, minor) of the two versions."""
        binary, board = measurements.binary, measurements.board
        runtime = board.qnn_version if board is not None else None
        runtime_number = _major_minor(runtime)
        limit = _dotted(runtime_number) if runtime_number else None
        answer = Answer(self.name, limit, "QNN", on_emulator(measurements))
        if binary is None:
            return answer.unknown(not_taken(measurements, Need.BINARY, "binary"))
        built = binary.qnn_version
        built_number = _major_minor(built)
        if built_number is None:
            why = binary.unknown.get("qnn_version", repr(built))
            return answer.unknown(f"QNN version of the binary unknown: {why}")
        if board is None:
            return answer.unknown(not_taken(measurements, Need.BOARD, "board"), built)
        seen = {
            "binary": built,
            "runtime": runtime,
            "rule": RUNTIME_RULE,
            "source": RUNTIME_SOURCE,
        }
        if runtime_number is None:
            shown = "could not be read" if runtime is None else f"is no version: {runtime!r}"
            return answer.unknown(f"QNN version of the board {shown}", built, **seen)
        if built_number > runtime_number:
            return answer.fails(
                _dotted(built_number),
                f"binary is of QNN {_dotted(built_number)}, the board's runtime is older: "
                f"{_dotted(runtime_number)}",
                **seen,
            )
        if built_number == runtime_number and str(built).lstrip("v") != str(runtime).lstrip("v"):
            seen["note"] = "another patch or build of one minor version, which the rule allows"
        return answer.passes(
            _dotted(built_number),
            f"binary is of QNN {built}, the runtime of {runtime}",
            **seen,
        )


def _part_name(soc: str) -> str:
    part = find_part(soc)
    return part.name if part is not None else soc.upper()


def _major_minor(version: str | None) -> tuple[int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)(?:\.|$)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
