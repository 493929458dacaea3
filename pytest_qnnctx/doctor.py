"""``qnnctx doctor``: what is installed and at hand, and what to do about the rest."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_qnnctx.errors import InfrastructureError, QnnctxError, UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.build.toolchain import Toolchain
    from pytest_qnnctx.workbench import Workbench


class State(StrEnum):
    """``OPTIONAL``: not there, and nothing else suffers from that."""

    OK = "ok"
    OPTIONAL = "-"
    MISSING = "MISSING"
    WRONG = "WRONG"


@dataclass(frozen=True)
class Examined:
    """One thing that was looked at."""

    what: str
    state: State
    found: str
    next_step: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing has to be done about it."""
        return self.state in (State.OK, State.OPTIONAL)


def examine(workbench: Workbench) -> list[Examined]:
    """Look at each part in turn; a part that fails does not keep the next from being looked at."""
    return [
        Examined("machine", State.OK, _machine()),
        _try(".qualcomm-env", lambda: _configuration(workbench), absent=State.OPTIONAL),
        *_toolchains(workbench),
        _try("toolchain in use", lambda: _in_use(workbench)),
        _try("QNN system library", _system_library),
        _try("boards file", lambda: _boards(workbench)),
        _try("board sim", lambda: _sim(workbench)),
    ]


def report(examined: list[Examined]) -> str:
    """One screen: a line a part, what was found, and what to do, the necessary first."""
    width = max(len(one.what) for one in examined)
    lines = [f"{one.state:<8}{one.what:<{width}}  {one.found}" for one in examined]
    for title, states in (
        ("To do:", (State.WRONG, State.MISSING)),
        ("If you want them:", (State.OPTIONAL,)),
    ):
        steps = [o for o in examined if o.state in states and o.next_step]
        if steps:
            lines += ["", title, *(f"  {one.what}: {one.next_step}" for one in steps)]
    if all(one.good for one in examined):
        lines += ["", "Next: pytest --board sim, or a board of your boards.yaml"]
    return "\n".join(lines)


def _try(what: str, look: Callable[[], str], *, absent: State = State.MISSING) -> Examined:
    """A mistake of the user is wrong; anything that is not there is ``absent``."""
    try:
        return Examined(what, State.OK, look())
    except UsageError as error:
        return Examined(what, State.WRONG, error.what, error.next_step)
    except QnnctxError as error:
        return Examined(what, absent, error.what, error.next_step)


def _machine() -> str:
    system = f"{platform.system()} {platform.machine()}"
    return f"{system}, Python {platform.python_version()}"


def _configuration(workbench: Workbench) -> str:
    from pytest_qnnctx.qualcomm_env import load_qualcomm_env

    env = load_qualcomm_env(workbench.settings.root)
    if env.source is None and not any(env.values.values()):
        raise InfrastructureError(
            "none in the project's root or the home directory",
            next_step="write one with QC_QNN_SDK_ROOT=... and QC_SETUP_VERSION=1, to build with "
            "the QAIRT SDK",
        )
    filled = [key for key, value in sorted(env.values.items()) if value]
    source = "the environment" if env.source is None else str(env.source)
    return f"{source}: {', '.join(filled)}"


def _toolchains(workbench: Workbench) -> list[Examined]:
    """Each toolchain; only the one that was asked for by name must be there."""
    examined = []
    for name, toolchain in workbench.registry.toolchains.items():

        def look(toolchain: Toolchain = toolchain) -> str:
            found = toolchain.identify()
            qnn = f", QNN {found.qnn_version}" if found.qnn_version else ""
            return f"{found.version}{qnn}"

        needed = State.MISSING if workbench.settings.toolchain == name else State.OPTIONAL
        examined.append(_try(f"toolchain {name}", look, absent=needed))
    return examined


def _in_use(workbench: Workbench) -> str:
    choice = workbench.toolchain
    assert choice.toolchain is not None
    return f"{choice.toolchain.name} ({choice.reason})"


def _system_library() -> str:
    from pytest_qnnctx.binary.library import find_system_library

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
