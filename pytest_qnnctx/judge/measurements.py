"""Everything that was observed of one model on one board, as plain data for the gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.boards.board import BoardFacts
from pytest_qnnctx.errors import ProductFailure
from pytest_qnnctx.model import Artifact, Target

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array


class Need(StrEnum):
    """What a gate must have observed before it can judge."""

    ARTIFACT = "artifact"
    BINARY = "binary"
    BOARD = "board"
    LOADS = "loads"
    LATENCY = "latency"
    OUTPUTS = "outputs"


@dataclass(frozen=True)
class LoadSamples:
    """Context load times in milliseconds, each from a fresh process; the cold first one apart.

    ``recorded_at`` is the date where they were repeated from a record (emulator only).
    """

    cold_ms: float
    samples_ms: tuple[float, ...]
    recorded_at: str = ""


@dataclass(frozen=True)
class LatencySamples:
    """Inference times in milliseconds; ``inputs`` says what was fed ("dataset" or "zeros").

    ``recorded_at``: see LoadSamples.
    """

    samples_ms: tuple[float, ...]
    inputs: str
    recorded_at: str = ""


@dataclass(frozen=True)
class Outputs:
    """What came out, sample by sample (``{output: float32 array}``), beside the targets.

    ``device``: the context binary on the board. ``reference``: the FP32 model on the host, None
    with ``reference_missing`` saying why there is none to be had, or ``reference_failed`` why the
    one that was given did not run. ``quantized``: the quantized ONNX on the host's CPU,
    taken only when a metric failed, to tell the quantization's loss from the backend's.
    """

    targets: Sequence[Any]
    device: Sequence[Mapping[str, Array]]
    reference: Sequence[Mapping[str, Array]] | None = None
    reference_missing: str = ""
    reference_failed: str = ""
    quantized: Sequence[Mapping[str, Array]] | None = None
    quantized_missing: str = ""


@dataclass(frozen=True)
class Measurements:
    """All that is known of one test. What is None was not observed; ``missing`` says why, by Need.

    ``build_error`` is the ProductFailure that ended the build (then ``artifact`` is None).
    ``emulated`` is True where the board is the emulator. ``require_hardware`` refuses such times.
    """

    target: Target
    board: BoardFacts | None = None
    artifact: Artifact | None = None
    build_error: ProductFailure | None = None
    binary: BinaryInfo | None = None
    loads: LoadSamples | None = None
    latency: LatencySamples | None = None
    outputs: Outputs | None = None
    emulated: bool = False
    require_hardware: bool = False
    missing: Mapping[Need, str] = field(default_factory=dict)
