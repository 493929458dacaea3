"""``qnnctx doctor``: what is installed and at hand, and what to do about the rest."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_qnnctx import __version__
from pytest_qnnctx.doctor_report import Examined, State, told_once
from pytest_qnnctx.errors import InfrastructureError, QnnctxError, UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.build.toolchain import (
        BuildProduct,
        BuildRequest,
        Progress,
        Toolchain,
        ToolchainId,
    )
    from pytest_qnnctx.model import Model, Target
    from pytest_qnnctx.qualcomm_env import QualcommEnv
    from pytest_qnnctx.workbench import Workbench

_ENV = ".qualcomm-env"
_WHEEL = "onnxruntime_qnn"
_EXTRA = "pytest-qnnctx[sim]"
_INSTALL = f"pip install '{_EXTRA}' (Qualcomm's compiler, emulator and library; Linux, glibc 2.35+)"
#: What this package reads of .qualcomm-env: said where the file is half-written.
_READ_KEYS = ("QC_QNN_SDK_ROOT", "QC_BUILD_HOST", "QC_QAIRT_VERSION")


def examine(workbench: Workbench) -> list[Examined]:
    """Look at each part in turn; a part that fails does not keep the next from being looked at.

    Not there and not asked for is optional; what was asked for (by an option, the environment,
    .qualcomm-env or a file) and does not work is missing or wrong.
    """
    toolchains = {name: _Once(one) for name, one in workbench.registry.toolchains.items()}
    examined = [
        Examined("machine", State.OK, _machine()),
        _configuration(workbench),
        *(_toolchain(workbench, one) for one in toolchains.values()),
        _try("toolchain", lambda: _in_use(workbench, toolchains)),
        _try("QNN system library", _system_library),
        _try("cache", lambda: str(workbench.cache_dir)),
        _boards(workbench),
        *_selected(workbench),
        _sim(workbench),
    ]
    return told_once(examined)


def _try(what: str, look: Callable[[], str], *, absent: State = State.MISSING) -> Examined:
    """A mistake of the user is wrong; anything that is not there is ``absent``."""
    try:
        return Examined(what, State.OK, look())
    except QnnctxError as error:
        state = State.WRONG if isinstance(error, UsageError) else absent
        # Several parts come with one package: one and the same step, which is then told once.
        step = _INSTALL if _EXTRA in error.next_step else error.next_step.partition("\n")[0]
        return Examined(what, state, " ".join(error.what.split()), step, error.what)


def _machine() -> str:
    system = f"{platform.system()} {platform.machine()}"
    return f"{system}, Python {platform.python_version()}, pytest-qnnctx {__version__}"


# --- .qualcomm-env ----------------------------------------------------------------------------


def _env(workbench: Workbench) -> QualcommEnv:
    from pytest_qnnctx.qualcomm_env import load_qualcomm_env

    return load_qualcomm_env(workbench.settings.root)


def _configuration(workbench: Workbench) -> Examined:
    try:
        env = _env(workbench)
    except UsageError as error:
        found = error.what + _written(workbench)
        step = error.next_step.partition("; `qnnctx doctor`")[0]
        return Examined(_ENV, State.WRONG, found, step, error.what)
    keys = [key for key, value, _ in env.shown() if value]
    if env.source is None and not keys:
        return Examined(
            _ENV,
            State.OPTIONAL,
            "none in the project's root or the home directory",
            "lines KEY=VALUE there, with QC_SETUP_VERSION=1 last, say where the SDK and its "
            "machine are",
        )
    found = f"{'the environment' if env.source is None else env.source}: {', '.join(keys)}"
    if env.unknown:
        found += f"; not known: {', '.join(env.unknown)}"
    return Examined(_ENV, State.OK, found, "; ".join(env.warnings))


def _written(workbench: Workbench) -> str:
    """Which keys a half-written file has and lacks; nothing where it cannot even be parsed."""
    from pytest_qnnctx.qualcomm_env import written_keys

    try:
        keys = written_keys(workbench.settings.root)
    except UsageError:
        return ""
    lacking = [key for key in _READ_KEYS if key not in keys]
    there = f"; it has {', '.join(keys)}" if keys else "; it has nothing"
    return there + (f"; without a value: {', '.join(lacking)}" if lacking else "")


# --- toolchains -------------------------------------------------------------------------------


class _Once:
    """A toolchain that is asked once which it is: that can mean to log in to another machine."""

    def __init__(self, toolchain: Toolchain) -> None:
        self.name = toolchain.name
        self.toolchain = toolchain
        self._answer: ToolchainId | QnnctxError | None = None

    def identify(self) -> ToolchainId:
        """As the toolchain itself."""
        if self._answer is None:
            try:
                self._answer = self.toolchain.identify()
            except QnnctxError as error:
                self._answer = error
        if isinstance(self._answer, QnnctxError):
            raise self._answer
        return self._answer

    def options(self, model: Model, target: Target) -> Mapping[str, str]:
        """As the toolchain itself."""
        return self.toolchain.options(model, target)

    def build(self, request: BuildRequest, progress: Progress) -> BuildProduct:
        """As the toolchain itself."""
        return self.toolchain.build(request, progress)


def _toolchain(workbench: Workbench, once: _Once) -> Examined:
    """One that nobody asked for may be absent."""
    asked = _asked_for(workbench, once.name)
    with suppress(QnnctxError):
        once.identify()
        asked = True  # it is there, and would be used: what else is wrong with it counts

    def look() -> str:
        found = once.identify()
        return _described(workbench, once.toolchain, found)

    seen = _try(f"toolchain {once.name}", look, absent=State.MISSING if asked else State.OPTIONAL)
    if once.name == "onboard" and seen.state is State.WRONG and not asked:
        return replace(
            seen, state=State.OPTIONAL, found="QC_QAIRT_VERSION, the board's generator, is not set"
        )
    return seen


def _asked_for(workbench: Workbench, name: str) -> bool:
    """Whether something was set up for this toolchain, or it was chosen by name."""
    settings = workbench.settings
    if settings.toolchain == name:
        return True
    if name == "fetch":
        return settings.manifest is not None
    keys = {"qairt": ("QC_QNN_SDK_ROOT", "QC_BUILD_HOST"), "onboard": ("QC_QAIRT_VERSION",)}
    if name == "qairt" and settings.build_host:
        return True
    try:
        env = _env(workbench)
    except UsageError:
        return name in keys  # there is a file, and what is in it is for these
    return any(env.get(key) for key in keys.get(name, ()))


def _described(workbench: Workbench, toolchain: Toolchain, found: ToolchainId) -> str:
    from pytest_qnnctx.build.pins.manifest import read_manifest
    from pytest_qnnctx.build.pins.toolchain import FetchToolchain
    from pytest_qnnctx.build.qairt.toolchain import QairtToolchain

    if isinstance(toolchain, QairtToolchain):
        sdk = toolchain.sdk()
        for target in _targets(workbench):
            sdk.check_target(target)
        return f"{sdk.version} at {sdk.root} on {sdk.host}, for HTP {', '.join(sdk.archs)}"
    if isinstance(toolchain, FetchToolchain) and workbench.settings.manifest is not None:
        manifest = read_manifest(workbench.settings.manifest)
        pins = f"{len(manifest.pins)} pin{'' if len(manifest.pins) == 1 else 's'}"
        return f"{manifest.path}: {pins}, store: {manifest.store or 'none'}"
    qnn = f", QNN {found.qnn_version}" if found.qnn_version else ""
    return f"{found.version}{qnn}"


def _targets(workbench: Workbench) -> list[Target]:
    """What will be built for: the selected boards, or those of the file, or else the emulator."""
    try:
        boards = workbench.inventory.boards
        if workbench.settings.board is not None:
            boards = workbench.boards
    except UsageError:  # told in another line
        return []
    own = [board for board in boards if board.name != "sim"] or list(boards)
    return list(dict.fromkeys(board.target for board in own))


def _in_use(workbench: Workbench, toolchains: Mapping[str, _Once]) -> str:
    from pytest_qnnctx.toolchain_choice import AUTO, best_at_hand

    name = workbench.settings.toolchain
    if name != AUTO:
        workbench.registry.toolchain(name)
        toolchains[name].identify()
        return f"{name} (asked for)"
    try:
        choice = best_at_hand(toolchains)
    except InfrastructureError:
        raise InfrastructureError("none is at hand to build with", next_step=_INSTALL) from None
    assert choice.toolchain is not None
    return f"{choice.toolchain.name} (auto: the first that is at hand; a pin comes before it)"


# --- what runs and reads binaries -------------------------------------------------------------


def _system_library() -> str:
    from pytest_qnnctx.binary.library import locate_system_library

    library = locate_system_library()
    if library.path is None:
        raise InfrastructureError(
            f"the graphs in a binary cannot be listed: {library.reason.partition(' (')[0]}",
            next_step=_INSTALL,
        )
    return f"{library.path} ({library.reason})"


def _boards(workbench: Workbench) -> Examined:
    def look() -> str:
        named = []
        for board in workbench.inventory.boards:
            known = board.transport in workbench.registry.transports
            unknown = f" (no transport {board.transport} yet)"
            named.append(f"{board.name}{'' if known else unknown}")
        return f"{workbench.inventory.source}: {', '.join(named)}"

    if workbench.settings.boards_file is None:
        return Examined(
            "boards file",
            State.OPTIONAL,
            "none: sim, the emulator, is the only board",
            "describe your boards in boards.yaml at the project's root",
        )
    return _try("boards file", look)


def _selected(workbench: Workbench) -> list[Examined]:
    if workbench.settings.board is None:
        return []

    def look() -> str:
        return ", ".join(f"{board.name} ({board.target})" for board in workbench.boards)

    return [_try("board selected", look)]


def _sim(workbench: Workbench) -> Examined:
    from pytest_qnnctx.workbench import Workbench as Bench

    settings = replace(workbench.settings, board="sim")

    def look() -> str:
        if find_spec(_WHEEL) is None:
            raise InfrastructureError(
                "the emulator comes with onnxruntime-qnn, which is not installed",
                next_step=_INSTALL,
            )
        bench = Bench(settings, workbench.registry, workbench.progress)
        with bench.lease("qnnctx doctor") as board:
            emulated = "yes" if board.facts.emulated else "no"
            return f"QNN {board.facts.qnn_version}, emulated: {emulated}"

    return _try("board sim", look, absent=_need_of_sim(workbench))


def _need_of_sim(workbench: Workbench) -> State:
    """Who has another board to judge on can do without the emulator."""
    try:
        boards = workbench.inventory.boards
    except UsageError:
        return State.MISSING
    others = [b for b in boards if b.name != "sim" and b.transport in workbench.registry.transports]
    return State.OPTIONAL if others and workbench.settings.board != "sim" else State.MISSING
