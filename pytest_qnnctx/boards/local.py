"""Transport ``local``: this machine is the board, or has its emulator."""

from __future__ import annotations

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.hosts.host import Host
from pytest_qnnctx.hosts.local import LocalHost


def open_local(board: Board) -> Host:
    """Open ``board``, which is this machine. Nothing can fail here."""
    return LocalHost(f"board {board.name}")
