"""``qnnctx doctor``: what is installed and at hand, and what to do about the rest."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_qnnctx.errors import QnnctxError

if TYPE_CHECKING:
    from pytest_qnnctx.workbench import Workbench


@dataclass(frozen=True)
class Examined:
    """One thing that was looked at."""

    what: str
    good: bool
    found: str
    next_step: str = ""


def examine(workbench: Workbench) -> list[Examined]:
    """Look at each part in turn; a part that fails does not keep the next from being looked at."""
    return [
        Examined("machine", True, f"{platform.system()} {platform.machine()}"),
        _try("toolchain", lambda: _toolchain(workbench)),
        _try("QNN system library", _system_library),
        _try("boards file", lambda: _boards(workbench)),
        _try("board sim", lambda: _sim(workbench)),
    ]


def _try(what: str, look: Callable[[], str]) -> Examined:
    try:
        return Examined(what, True, look())
    except QnnctxError as error:
        return Examined(what, False, error.what, error.next_step)


def _toolchain(workbench: Workbench) -> str:
    choice = workbench.toolchain
    assert choice.toolchain is not None
    found = choice.toolchain.identify()
    return f"{found.name} {found.version}, QNN {found.qnn_version} ({choice.reason})"


def _system_library() -> str:
    from pytest_qnnctx.binary.library import find_system_library
    from pytest_qnnctx.errors import InfrastructureError

    path = find_system_library()
    if path is None:
        raise InfrastructureError(
            "libQnnSystem.so was not found, so the graphs in a binary cannot be listed",
            next_step="pip install 'pytest-qnnctx[sim]', or set QNN_SDK_ROOT to a QAIRT SDK",
        )
    return str(path)


def _boards(workbench: Workbench) -> str:
    inventory = workbench.inventory
    source = inventory.source or "none"
    named = []
    for board in inventory.boards:
        known = board.transport in workbench.registry.transports
        named.append(board.name if known else f"{board.name} (no transport {board.transport} yet)")
    return f"{source}: {', '.join(named)}"


def _sim(workbench: Workbench) -> str:
    from dataclasses import replace

    from pytest_qnnctx.workbench import Workbench as Bench

    settings = replace(workbench.settings, board="sim")
    with Bench(settings, workbench.registry, workbench.progress).lease("qnnctx doctor") as board:
        facts = board.facts
        return f"QNN {facts.qnn_version}, emulated: {'yes' if facts.emulated else 'no'}"
