"""The plain data that flows from step to step: Model, Target, Artifact and its Provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import Finding

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.generic]
    Sample = Mapping[str, Array]
    """One inference: graph input (or output) name -> array, shape as the graph has it."""
    Calibration = Path | Iterable[Sample] | Callable[[], Iterable[Sample]]

PROVENANCE_SCHEMA = 1


@dataclass(frozen=True)
class Model:
    """What is to be compiled.

    ``path`` is an ONNX file, FP32 or QDQ. ``encodings`` is an AIMET file (0.6.1, 1.0.0 or 2.0.0).
    ``calibration`` gives inputs for a quantizer: a ``.npz`` file (one array an input, samples on a
    new first axis), a qnn-net-run input list (``.txt``), or an iterable (or a function that
    returns one) of ``{input: array}``. ``input_shapes`` fixes dynamic shapes.
    ``reference`` is the FP32 ONNX to compare with where ``path`` is already quantized.
    """

    path: Path
    name: str = ""
    encodings: Path | None = None
    calibration: Calibration | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reference: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        if self.encodings is not None:
            object.__setattr__(self, "encodings", Path(self.encodings))
        if self.reference is not None:
            object.__setattr__(self, "reference", Path(self.reference))
        if isinstance(self.calibration, Iterator):
            # It can be read once only, and more than one fixture may ask for the binary.
            object.__setattr__(self, "calibration", tuple(self.calibration))
        if not self.name:
            object.__setattr__(self, "name", self.path.stem)


@dataclass(frozen=True)
class Target:
    """What it is compiled for.

    ``soc`` in upper case ("QCS6490"), ``htp_arch`` as "v68". ``soc_model`` is the SDK's number and
    ``vtcm_mb`` the part's VTCM in MiB; both are None for a SoC that :mod:`.parts` does not know.
    ``has_float`` is False where the HTP has no FP16 (None: unknown).
    """

    soc: str
    htp_arch: str
    soc_model: int | None = None
    vtcm_mb: int | None = None
    has_float: bool | None = None

    def __str__(self) -> str:
        return f"{self.soc} / HTP {self.htp_arch}"


@dataclass(frozen=True)
class EncodingsUse:
    """How a model's encodings ended up in the compiled graph.

    ``version`` is the file's; ``total`` its entries, ``applied`` those found again in the compiled
    graph with the same scale, offset and width, ``unseen`` those whose tensor the compiler fused
    away (nothing contradicts them, nothing confirms them), ``differing`` a
    line for each that was changed. ``inherited`` tensors took the encoding of their source
    (reshapes and the like), ``derived`` are biases quantized to int32, ``uncovered`` have none.
    """

    version: str
    total: int
    applied: int = 0
    unseen: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Everything recorded beside a binary; plain JSON values only.

    ``files`` maps a role (onnx, external data, encodings, calibration, reference) to
    ``{"name": ..., "sha256": ...}``. ``float_ops`` and ``host_ops`` are None where the toolchain
    could not tell: unknown is not "none". ``asked`` is what the compiler was told and the binary
    can be held against: ``htp_arch`` ("v68"), ``soc_model``, ``vtcm_mb``, ``optimization_level``,
    ``hvx_threads``. ``findings`` are worth saying, and did not end the build. ``ddr`` has the
    compiler's traffic figures in bytes, a mapping a graph (``spill_bytes`` ...), where it prints
    them. ``source_key`` is equal for all that was built of the same files for the same target.
    ``origin`` tells, of a binary that was fetched, where it was built: ``toolchain``, ``built_at``,
    ``build_seconds``, ``builder`` and ``host`` of that build.
    """

    key: str
    model: str
    files: Mapping[str, Mapping[str, str]]
    target: Mapping[str, Any]
    toolchain: Mapping[str, Any]
    quantization: str
    commands: tuple[tuple[str, ...], ...]
    built_at: str
    build_seconds: float
    builder: str
    host: str
    float_ops: tuple[str, ...] | None = None
    host_ops: tuple[str, ...] | None = None
    encodings: EncodingsUse | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    ddr: tuple[Mapping[str, int], ...] = ()
    origin: Mapping[str, Any] | None = None
    source_key: str = ""
    choice: str = ""
    sha256: str = ""
    size_bytes: int = 0
    schema_version: int = PROVENANCE_SCHEMA

    def to_json(self) -> dict[str, Any]:
        """A dictionary of builtin types, ready for ``json.dump``."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Provenance:
        """The inverse of :meth:`to_json`. Raises ``KeyError`` or ``TypeError`` on foreign data."""
        values = dict(data)
        if values.get("encodings") is not None:
            use: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in values["encodings"].items()
            }
            values["encodings"] = EncodingsUse(**use)
        values["commands"] = tuple(tuple(command) for command in values["commands"])
        values["findings"] = tuple(Finding(**found) for found in values.get("findings", ()))
        values["ddr"] = tuple(values.get("ddr", ()))
        for name in ("float_ops", "host_ops"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True)
class Artifact:
    """A context binary and what is known of its making.

    ``quantized_model`` is the QDQ ONNX that was compiled (for running the quantized graph on the
    host's CPU); None where the toolchain keeps none.
    """

    path: Path
    sha256: str
    size_bytes: int
    provenance: Provenance | None = None
    quantized_model: Path | None = None
