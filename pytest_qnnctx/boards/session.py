"""A leased board with an open transport: staging files there and cleaning up afterwards."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.transport import Transport


class BoardSession:
    """The right to use ``board`` through ``transport`` until it is closed.

    Attributes: ``board``, ``transport``, ``workdir`` (a directory on the board, private to this
    session, removed when it closes).
    """

    board: Board
    transport: Transport
    workdir: str

    def stage(self, local: Path, sha256: str, *, timeout_s: float = 300.0) -> str:
        """Bring ``local`` to the board unless the same bytes are there; returns its remote path.

        The copy's sha256 is computed on the board and compared. Raises InfrastructureError where
        it differs.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Remove ``workdir``, close the transport, end the lease. Safe to call twice."""
        raise NotImplementedError

    def __enter__(self) -> BoardSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
