"""Which boards a ``--board`` selector means. Pure functions on an inventory."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.sim import SIM
from pytest_qnnctx.boards.target import canonical_soc
from pytest_qnnctx.errors import UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.boards.inventory import Inventory


def select(inventory: Inventory, selector: str) -> tuple[Board, ...]:
    """The boards that ``selector`` means: one word or several with commas between, in that order.

    A word is a board's name, a SoC (any case, aliases too) or a tag; the first of these that
    matches counts. ``sim`` is selected as ``sim`` only, never by its SoC: an emulator is no
    QCS6490. Raises UsageError where a word matches nothing.
    """
    chosen: dict[str, Board] = {}
    for word in selector.split(","):
        for board in _matching(inventory, word.strip()):
            chosen[board.name] = board
    return tuple(chosen.values())


def _matching(inventory: Inventory, word: str) -> tuple[Board, ...]:
    boards = inventory.boards
    soc = canonical_soc(word)
    for found in (
        [board for board in boards if board.name == word],
        [board for board in boards if board.name != SIM and board.target.soc == soc],
        [board for board in boards if word in board.tags],
    ):
        if found:
            return tuple(found)
    raise _nothing(inventory, word)


def _nothing(inventory: Inventory, word: str) -> UsageError:
    names = {board.name for board in inventory.boards}
    socs = {board.target.soc for board in inventory.boards if board.name != SIM}
    tags = {tag for board in inventory.boards for tag in board.tags}
    known = {text.lower(): text for text in sorted(tags | socs | names)}
    close = get_close_matches(word.lower(), known, 1)
    what = f"no board is selected by '{word}'" if word else "a board selector is empty"
    where = inventory.source or "no boards file was read"
    listing = f"names: {_list(names)}; SoCs: {_list(socs)}; tags: {_list(tags)} ({where})"
    if close:
        hint = f"did you mean '{known[close[0]]}'?"
    elif inventory.source is None:
        hint = "write boards.yaml at the root, name one with --boards-file, or use --board sim"
    else:
        hint = f"use one of these, or add the board to {inventory.source}"
    return UsageError(f"{what}; there are {listing}", next_step=hint)


def _list(texts: Iterable[str]) -> str:
    return ", ".join(sorted(texts)) or "none"
