"""What a toolchain is: a way from a Model and a Target to a context binary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

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
class BuildRequest:
    """One build. ``workdir`` is empty, on the store's file system, and private to this build."""

    model: Model
    target: Target
    workdir: Path
    time_limit_s: float


@dataclass(frozen=True)
class BuildProduct:
    """What a build left in its ``workdir``.

    ``quantization`` is short text such as ``w8a8``. ``float_ops`` / ``host_ops`` name nodes that
    compute in float / that run off the NPU; None means that the toolchain cannot tell.
    ``files`` are further files to keep, by role (``quantized_model``, ``log`` ...).
    """

    binary: Path
    quantization: str
    commands: tuple[tuple[str, ...], ...]
    float_ops: tuple[str, ...] | None = None
    host_ops: tuple[str, ...] | None = None
    encodings: EncodingsUse | None = None
    files: Mapping[str, Path] = field(default_factory=dict)


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
