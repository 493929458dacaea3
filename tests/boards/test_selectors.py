from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qnnctx.boards.inventory import Inventory
from pytest_qnnctx.boards.selectors import select
from pytest_qnnctx.boards.sim import sim_board
from pytest_qnnctx.errors import UsageError


@pytest.fixture
def inventory(make_board):
    return Inventory(
        (
            make_board("rb3-01", tags=("lab-a", "fast")),
            make_board("rb3-02", soc="qcm6490", tags=("lab-b",)),
            make_board("phone", soc="sm8350", tags=("lab-a", "rb3-02")),
            make_board("odd", soc="xy1234", tags=("qcs6490",)),
            sim_board(),
        ),
        Path("boards.yaml"),
    )


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("rb3-01", ["rb3-01"]),
        ("qcs6490", ["rb3-01", "rb3-02"]),
        ("QCM6490", ["rb3-01", "rb3-02"]),
        ("Xy1234", ["odd"]),
        ("lab-a", ["rb3-01", "phone"]),
        ("sim", ["sim"]),
        ("phone, rb3-01", ["phone", "rb3-01"]),
        ("rb3-01,qcs6490,lab-a", ["rb3-01", "rb3-02", "phone"]),
        ("rb3-02", ["rb3-02"]),  # a name wins over a tag
    ],
)
def test_a_word_is_a_name_then_a_soc_then_a_tag(inventory, selector, names):
    assert [board.name for board in select(inventory, selector)] == names


@pytest.mark.parametrize(
    "selector", ["rb3-03", "QCS649", "lab", "nothing-like-it", "", "a,", "SM8550"]
)
def test_what_matches_nothing_lists_what_there_is(inventory, selector):
    with pytest.raises(UsageError) as caught:
        select(inventory, selector)
    message = str(caught.value)
    assert "names: odd, phone, rb3-01, rb3-02, sim" in message
    assert "SoCs: QCS6490, SM8350, XY1234" in message
    assert "tags: fast, lab-a, lab-b, qcs6490, rb3-02, sim" in message
    assert "boards.yaml" in message


def test_the_closest_is_named(inventory):
    with pytest.raises(UsageError, match="did you mean 'QCS6490'"):
        select(Inventory(inventory.boards[:3], None), "qcs6409")


def test_the_emulator_is_never_selected_by_its_soc():
    with pytest.raises(UsageError, match="no boards file was read") as caught:
        select(Inventory((sim_board(),), None), "qcs6490")
    assert "--board sim" in caught.value.next_step
