"""What the tests of boards share: a board on this host whose files stay in the test's directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.target import target_of

MakeBoard = Callable[..., Board]


@pytest.fixture
def make_board(tmp_path: Path) -> MakeBoard:
    def make(name: str = "here", *, soc: str = "qcs6490", shared: bool = False, **more) -> Board:
        more.setdefault("staging_dir", str(tmp_path / "staging"))
        return Board(
            name=name,
            target=target_of(soc, "v68"),
            transport="local",
            runner="netrun",
            shared=shared,
            **more,
        )

    return make
