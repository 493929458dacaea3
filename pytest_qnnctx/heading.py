"""What a session says of itself: the header's lines and the report's session record."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from pytest_qnnctx import __version__
from pytest_qnnctx.errors import QnnctxError

if TYPE_CHECKING:
    from pytest_qnnctx.report.record import SessionRecord, TestRecord
    from pytest_qnnctx.workbench import Workbench

_PACKAGES = ("pytest", "pytest-xdist", "onnx", "onnxruntime", "onnxruntime-qnn", "numpy")


def header_lines(workbench: Workbench) -> list[str]:
    """Boards, where the choice came from, toolchain and versions."""
    settings = workbench.settings
    names = ", ".join(board.name for board in workbench.boards)
    total = len(workbench.inventory.boards)
    source = workbench.inventory.source
    where = f" of {total} in {source}" if source else ""
    hardware = ", hardware required" if settings.require_hardware else ""
    return [
        f"qnnctx {__version__}: board {names}{where} (from {settings.origins['board']}), "
        f"{workbench.target}{hardware}",
        f"qnnctx toolchain: {describe_toolchain(workbench)}",
    ]


def describe_toolchain(workbench: Workbench) -> str:
    """Name and versions, or the reason why there is none."""
    try:
        choice = workbench.toolchain
        assert choice.toolchain is not None
        found = choice.toolchain.identify()
    except QnnctxError as error:
        return f"none: {error.what}"
    qnn = f", QNN {found.qnn_version}" if found.qnn_version else ""
    return f"{found.name} {found.version}{qnn} ({choice.reason})"


def session_record(workbench: Workbench, tests: Sequence[TestRecord]) -> SessionRecord:
    """The session for the report. Where no board was selected, what hangs on one is None."""
    from pytest_qnnctx.report.record import SessionRecord

    versions = {"python": platform.python_version(), "pytest-qnnctx": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    if workbench.settings.board is None:
        return SessionRecord(versions)
    used = [test.emulated for test in tests if test.emulated is not None]
    return SessionRecord(
        versions,
        selector=workbench.settings.board,
        boards=tuple(board.name for board in workbench.boards),
        target=str(workbench.target),
        toolchain=describe_toolchain(workbench),
        emulated=any(used) if used else None,
    )
