"""What comes with the package, offered through the same hooks that others use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pytest_qnnctx.boards.transport import TransportFactory
    from pytest_qnnctx.build.toolchain import Toolchain
    from pytest_qnnctx.config import Settings
    from pytest_qnnctx.judge.gate import Gate
    from pytest_qnnctx.judge.metric import Metric
    from pytest_qnnctx.run.runner import Runner

hookimpl = pluggy.HookimplMarker("pytest")


@hookimpl
def pytest_qnnctx_toolchains(settings: Settings) -> Sequence[Toolchain]:
    """``qairt``, ``ort``, ``onboard`` and ``fetch``."""
    from pytest_qnnctx.build.onboard.toolchain import OnboardToolchain
    from pytest_qnnctx.build.ort_toolchain import OrtToolchain
    from pytest_qnnctx.build.pins.toolchain import FetchToolchain
    from pytest_qnnctx.build.qairt.toolchain import QairtToolchain

    return (
        QairtToolchain(settings),
        OrtToolchain(),
        OnboardToolchain(settings),
        FetchToolchain(settings),
    )


@hookimpl
def pytest_qnnctx_transports() -> Mapping[str, TransportFactory]:
    """Transport ``local``."""
    from pytest_qnnctx.boards.local import open_local

    return {"local": open_local}


@hookimpl
def pytest_qnnctx_runners() -> Sequence[Runner]:
    """Runner ``netrun``."""
    from pytest_qnnctx.run.netrun_runner import NetrunRunner

    return (NetrunRunner(),)


@hookimpl
def pytest_qnnctx_gates() -> Sequence[Gate]:
    """All gates of this package."""
    from pytest_qnnctx.judge.gates import BUILT_IN

    return BUILT_IN


@hookimpl
def pytest_qnnctx_metrics() -> Sequence[Metric]:
    """``top1`` and ``top5``."""
    from pytest_qnnctx.judge.metrics import BUILT_IN

    return BUILT_IN
