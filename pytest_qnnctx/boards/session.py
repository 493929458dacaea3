"""A leased board with an open transport: staging files there and cleaning up afterwards."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.lease import Lease, acquire, acquire_any
from pytest_qnnctx.boards.staging import StagingArea
from pytest_qnnctx.boards.transport import Transport, TransportFactory


class BoardSession:
    """The right to use ``board`` through ``transport`` until it is closed.

    Attributes: ``board``, ``transport``, ``workdir`` (a directory on the board, private to this
    session, removed when it closes) and ``problems``: a line for each thing that could not be
    cleaned up, before or after. ``closing`` holds what is to be closed, the last opened first.
    """

    board: Board
    transport: Transport
    workdir: str
    problems: list[str]

    def __init__(
        self,
        board: Board,
        transport: Transport,
        workdir: str,
        *,
        closing: ExitStack | None = None,
        problems: list[str] | None = None,
    ) -> None:
        self.board = board
        self.transport = transport
        self.workdir = workdir
        self.problems = [] if problems is None else problems
        self._closing = closing or ExitStack()

    def stage(self, local: Path, sha256: str, *, timeout_s: float = 300.0) -> str:
        """Bring ``local`` to the board unless the same bytes are there; returns its remote path.

        The copy's sha256 is computed on the board and compared. Raises InfrastructureError where
        it differs.
        """
        area = StagingArea(self.transport, self.board.name, self.board.staging_dir, self.workdir)
        return area.stage(local, sha256, timeout_s=timeout_s)

    def close(self) -> None:
        """Remove ``workdir``, close the transport, end the lease. Safe to call twice.

        Each is tried even where the one before failed; what failed is added to ``problems``.
        """
        self._closing.close()

    def __enter__(self) -> BoardSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_session(
    board: Board,
    factory: TransportFactory,
    *,
    lock_dir: Path,
    lease_timeout_s: float,
    note: str = "",
) -> BoardSession:
    """Lease ``board`` (unless it is shared), connect to it and make a private directory there.

    Raises InfrastructureError where one of these fails; what was opened before is closed then.
    """
    lease = acquire(board, lock_dir=lock_dir, timeout_s=lease_timeout_s, note=note)
    return _open(lease, factory)


def open_any_session(
    boards: Sequence[Board],
    transport: Callable[[str], TransportFactory],
    *,
    lock_dir: Path,
    lease_timeout_s: float,
    note: str = "",
) -> BoardSession:
    """Like :func:`open_session`, for the first of ``boards`` that is or becomes free.

    ``transport`` looks a transport up by name.
    """
    factories = {board.transport: transport(board.transport) for board in boards}
    lease = acquire_any(boards, lock_dir=lock_dir, timeout_s=lease_timeout_s, note=note)
    return _open(lease, factories[lease.board.transport])


def _open(lease: Lease, factory: TransportFactory) -> BoardSession:
    board, problems = lease.board, list[str]()
    try:
        with ExitStack() as stack:
            stack.callback(_noting, problems, f"ending the lease of {board.name}", lease.close)
            transport = factory(board)
            stack.callback(_noting, problems, "closing the connection", transport.close)
            workdir = posixpath.join(board.staging_dir, "work", secrets.token_hex(8))
            area = StagingArea(transport, board.name, board.staging_dir, workdir)
            stack.callback(_noting, problems, "cleaning up", area.remove)
            left = area.prepare()
            if left:
                problems.append(f"board {board.name}: {left}")
            return BoardSession(
                board, transport, workdir, closing=stack.pop_all(), problems=problems
            )
    except BaseException as error:
        for problem in problems:
            error.add_note(problem)
        raise


def _noting(problems: list[str], what: str, step: Callable[[], None]) -> None:
    """Do one step of closing. Whatever it raises is noted, for the steps after it must follow."""
    try:
        step()
    except Exception as error:
        problems.append(f"{what} failed: {error}")
