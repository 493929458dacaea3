"""The inventory: every board of boards.yaml, and the emulator."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.defaults import default_runner, default_staging_dir
from pytest_qnnctx.boards.mistakes import Mistake, find_mistakes
from pytest_qnnctx.boards.sim import sim_board
from pytest_qnnctx.boards.target import target_of
from pytest_qnnctx.errors import Finding, UsageError

#: The keys that go to the transport as ``Board.settings``.
_TRANSPORT_KEYS = ("host", "port", "user", "ssh_config", "serial", "adb_server")
_MOST_SHOWN = 30


@dataclass(frozen=True)
class Inventory:
    """All known boards, in the file's order, the built-in ``sim`` last.

    ``source`` is the file, None where there is none.
    """

    boards: tuple[Board, ...]
    source: Path | None


def load_inventory(path: Path | None) -> Inventory:
    """Read a boards file; None means that there is none, and only ``sim``.

    Raises UsageError with every mistake in the file: place, board, key and what would be right.
    """
    if path is None:
        return Inventory((sim_board(),), None)
    from pytest_qnnctx.boards.yaml_document import read_document

    document = read_document(path)
    mistakes = find_mistakes(document.data, boards_schema())
    if mistakes:
        by_line = sorted(
            ((document.line_of(mistake.path), mistake) for mistake in mistakes),
            key=lambda found: found[0],
        )
        raise UsageError(
            f"the boards file '{path}' has {_count(len(mistakes))}",
            next_step="correct the file; its JSON Schema ships with the package for editors",
            findings=[_finding(path, line, mistake) for line, mistake in by_line[:_MOST_SHOWN]],
        )
    entries: Mapping[str, Mapping[str, Any]] = document.data["boards"]
    listed = tuple(_board(name, entry) for name, entry in entries.items())
    return Inventory((*listed, sim_board()), path)


@cache
def boards_schema() -> Mapping[str, Any]:
    """The JSON Schema (2020-12) of a boards file, as it ships with the package."""
    text = files("pytest_qnnctx.boards").joinpath("boards.schema.json").read_text("utf-8")
    schema: Mapping[str, Any] = json.loads(text)
    return schema


def _count(number: int) -> str:
    shown = f", the first {_MOST_SHOWN} of which are" if number > _MOST_SHOWN else ""
    return "a mistake" if number == 1 else f"{number} mistakes{shown}"


def _finding(path: Path, line: int, mistake: Mistake) -> Finding:
    steps = mistake.path
    words = []
    if steps[:1] == ("boards",) and len(steps) > 1:
        words.append(f"board {str(steps[1])[:80]!r}")
        steps = steps[2:]
    if steps:
        words.append("key " + ".".join(str(step)[:80] for step in steps))
    subject = ", ".join(words) or "the file"
    return Finding("boards_file", subject, f"{path.name}:{line}: {subject}: {mistake.text}")


def _board(name: str, entry: Mapping[str, Any]) -> Board:
    """A Board of an entry in which no mistake was found."""
    transport: str = entry["transport"]
    settings: dict[str, object] = {key: entry[key] for key in _TRANSPORT_KEYS if key in entry}
    if "port" in settings:
        settings["port"] = int(entry["port"])  # 22.0 is a whole number to JSON Schema
    settings.update(entry.get("settings", {}))
    staging_dir = entry.get("staging_dir") or default_staging_dir(transport)
    return Board(
        name=name,
        target=target_of(entry["soc"], entry["htp_arch"]),
        transport=transport,
        runner=entry.get("runner") or default_runner(transport),
        # normpath keeps two leading slashes, which POSIX gives a meaning that nobody means.
        staging_dir="/" + posixpath.normpath(staging_dir).lstrip("/"),
        tags=tuple(entry.get("tags", ())),
        lib_dir=entry.get("runtime", {}).get("lib_dir"),
        power={action: tuple(words) for action, words in entry.get("power", {}).items()},
        settings=settings,
        shared=entry.get("shared", False),
    )
