"""What others may add: toolchains, transports, runners, gates and metrics.

Implement a hook in a ``conftest.py``, in a pytest plugin, or in a package that names a module
under the entry-point group ``qnnctx`` (then the ``qnnctx`` command sees it too). The built-in ones
come through the same hooks (:mod:`pytest_qnnctx.builtin`). A later registration wins a name.
"""

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

hookspec = pluggy.HookspecMarker("pytest")


@hookspec
def pytest_qnnctx_toolchains(settings: Settings) -> Sequence[Toolchain]:  # type: ignore[empty-body]
    """Toolchains, best first. Called when the first binary is asked for.

    An implementation may leave ``settings`` out.
    """


@hookspec
def pytest_qnnctx_transports() -> Mapping[str, TransportFactory]:  # type: ignore[empty-body]
    """Transports by the name that boards.yaml uses. Called when a board is first opened."""


@hookspec
def pytest_qnnctx_runners() -> Sequence[Runner]:  # type: ignore[empty-body]
    """Runners. Called when a board is first opened."""


@hookspec
def pytest_qnnctx_gates() -> Sequence[Gate]:  # type: ignore[empty-body]
    """Gates. Called at start-up (each becomes a marker), so the module must import lightly."""


@hookspec
def pytest_qnnctx_metrics() -> Sequence[Metric]:  # type: ignore[empty-body]
    """Task metrics. Called at collection when a test names a metric."""
