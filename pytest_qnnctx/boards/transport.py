"""What a transport is: how a board is opened, which is a host from then on."""

from __future__ import annotations

from typing import Protocol

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.hosts.host import Host

#: An open connection to one board.
Transport = Host


class TransportFactory(Protocol):
    """Opens a Transport; offered by name through the hook ``pytest_qnnctx_transports``."""

    def __call__(self, board: Board) -> Transport:
        """Open a connection. Raises InfrastructureError where the board cannot be reached."""
        ...
