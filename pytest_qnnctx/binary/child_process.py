"""Run :mod:`.metadata_child` and draw a conclusion from how it ended."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_qnnctx.errors import BinaryUnreadable, InfrastructureError, QnnctxError
from pytest_qnnctx.process import ChildResult, run_child

_REBUILD = "Build the binary again, or copy it again and compare the sha256."
_OTHER_LIBRARY = (
    "Set QNNCTX_QNN_SYSTEM_LIB to the libQnnSystem.so of the QNN version that made the binary."
)
# libQnnSystem's numbers for an invalid argument and for a malformed binary.
_MEANING = {
    30001: "not a context binary, or a truncated one",
    30010: "not a context binary, or a truncated or damaged one",
}
_TAIL = 400


@dataclass(frozen=True)
class ChildReport:
    """What the child found. ``metadata`` is None where it had no library.

    Keys: see ``describe`` for ``metadata``, ``scan_options`` for ``options``.
    """

    metadata: dict[str, Any] | None
    options: dict[str, Any]


def read_in_child(path: Path, library: Path | None, time_limit_s: float) -> ChildReport:
    """Read ``path`` with ``library`` (None: without one) in a process of its own.

    Raises BinaryUnreadable where the file is at fault, InfrastructureError where the library or
    the machine is.
    """
    # The child must find this package however its parent did.
    search = filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")))
    try:
        result = run_child(
            [
                sys.executable,
                "-P",
                "-m",
                "pytest_qnnctx.binary.metadata_child",
                str(library) if library else "-",
                str(path),
            ],
            time_limit_s=time_limit_s,
            env={"PYTHONPATH": os.pathsep.join(search)},
        )
    except OSError as error:
        raise InfrastructureError(
            f"Cannot start a process to read {path}: {error}.",
            next_step="Check this Python installation and the limits of this machine.",
        ) from None
    return conclude(path, library, result)


def conclude(path: Path, library: Path | None, result: ChildResult) -> ChildReport:
    """What the end of the child says. Raises as :func:`read_in_child` does."""
    lines = _lines(result.stdout)
    last = lines[-1] if lines else {}
    if last.get("stage") == "done" and not result.timed_out:
        return ChildReport(last["metadata"], last["options"])
    if last.get("stage") == "failed" and not result.timed_out:
        raise _failed(path, library, last)
    from_outside = result.ended_from_outside and not result.timed_out
    if from_outside or not any(line.get("stage") == "loaded" for line in lines):
        raise InfrastructureError(
            f"The process that reads {path} did not come to the file: {result.ending}."
            f"{_tail(result.stderr)}",
            next_step=_OTHER_LIBRARY if library else "Check whether this machine is overloaded.",
        )
    if result.timed_out:
        raise BinaryUnreadable(
            f"{path}: libQnnSystem did not finish reading it: {result.ending}.",
            next_step=f"{_REBUILD} If this machine is overloaded, try again.",
        )
    raise BinaryUnreadable(
        f"{path}: libQnnSystem broke down while reading it ({result.ending}), as it does on "
        f"damaged context binaries.{_tail(result.stderr)}",
        next_step=_REBUILD,
    )


def _failed(path: Path, library: Path | None, line: dict[str, Any]) -> QnnctxError:
    kind, detail, code = line.get("kind"), line.get("detail"), line.get("code")
    if kind == "rejected":
        meaning = _MEANING.get(int(code or 0), "QnnSystemContext.h explains the number")
        return BinaryUnreadable(
            f"{path}: libQnnSystem refuses it with error {code} ({meaning}).", next_step=_REBUILD
        )
    if kind == "malformed":
        return BinaryUnreadable(f"{path}: its metadata is damaged: {detail}.", next_step=_REBUILD)
    if kind == "layout":
        return InfrastructureError(
            f"{library} describes {path} in a form not known here: {detail}.",
            next_step=f"{_OTHER_LIBRARY} Or look for a newer pytest-qnnctx.",
        )
    return InfrastructureError(
        f"{library} cannot be used to read {path}: {detail}.", next_step=_OTHER_LIBRARY
    )


def _lines(out: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines of ``out``; what is none of them is not taken for one."""
    found = []
    for line in out.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _tail(err: str) -> str:
    text = err.strip()[-_TAIL:]
    return f" Its last words: {text}" if text else ""
