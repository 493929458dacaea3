"""What a toolchain is: a way from a Model and a Target to a context binary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pytest_qnnctx.errors import Finding
from pytest_qnnctx.hosts.host import Host
from pytest_qnnctx.model import EncodingsUse, Model, Target

#: Called with one line whenever a long step has something to say ("compiling, 12 s").
Progress = Callable[[str], None]


@dataclass(frozen=True)
class ToolchainId:
    """Which toolchain: its name, its own version and the QNN version it compiles with."""

    name: str
    version: str
    qnn_version: str


@dataclass(frozen=True)
class BuildBoard:
    """A board that is ours for the time of a build.

    ``workdir`` is a directory on it that is private to this build and is removed afterwards.
    ``lib_dir`` is where its QNN libraries are, where boards.yaml says so. ``stage`` brings a file
    there by its sha256, checked on the board, and returns its path there.
    """

    host: Host
    workdir: str
    lib_dir: str | None
    stage: Callable[[Path, str], str]


#: Leases one of the selected boards for as long as the context lasts.
OpenBoard = Callable[[], AbstractContextManager[BuildBoard]]


@dataclass(frozen=True)
class BuildRequest:
    """One build. ``workdir`` is empty, on the store's file system, and private to this build.

    ``open_board`` is for toolchains that compile on a board; None where no board was selected.
    """

    model: Model
    target: Target
    workdir: Path
    time_limit_s: float
    open_board: OpenBoard | None = None


@dataclass(frozen=True)
class BuildProduct:
    """What a build left in its ``workdir``.

    ``quantization`` is short text such as ``w8a8``. ``float_ops`` / ``host_ops`` name nodes that
    compute in float / that run off the NPU; None means that the toolchain cannot tell.
    ``asked``, ``findings``, ``ddr`` and ``origin``: see :class:`~pytest_qnnctx.model.Provenance`.
    ``files`` are further files to keep, by role (``quantized_model``, ``log`` ...).
    """

    binary: Path
    quantization: str
    commands: tuple[tuple[str, ...], ...]
    float_ops: tuple[str, ...] | None = None
    host_ops: tuple[str, ...] | None = None
    encodings: EncodingsUse | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    ddr: tuple[Mapping[str, int], ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    origin: Mapping[str, Any] | None = None


class Toolchain(Protocol):
    """A toolchain; offered through the hook ``pytest_qnnctx_toolchains``."""

    name: str

    def identify(self) -> ToolchainId:
        """Which version is at hand. Raises InfrastructureError where it is not installed."""
        ...

    def options(self, model: Model, target: Target) -> Mapping[str, str]:
        """Every option that changes the output for this pair; part of the content key."""
        ...

    def build(self, request: BuildRequest, progress: Progress) -> BuildProduct:
        """Compile. Raises BuildFailed (the model's fault) or InfrastructureError (ours)."""
        ...
