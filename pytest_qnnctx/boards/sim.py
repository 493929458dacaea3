"""The board that is always there: Qualcomm's HTP emulator on this host."""

from __future__ import annotations

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.defaults import default_runner, default_staging_dir
from pytest_qnnctx.boards.target import target_of

SIM = "sim"


def sim_board() -> Board:
    """The emulator in the role of the project's first target, QCS6490 / HTP v68."""
    return Board(
        name=SIM,
        target=target_of("QCS6490", "v68"),
        transport="local",
        runner=default_runner("local"),
        staging_dir=default_staging_dir("local"),
        tags=(SIM,),
        shared=True,
    )
