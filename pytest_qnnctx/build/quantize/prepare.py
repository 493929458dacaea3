"""From a Model to the one ONNX that the compiler is given, with what it is meant to hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.build.onnx_file import load_model, save_model
from pytest_qnnctx.build.quantize.calibrate import observe_ranges, quantize_with_calibration
from pytest_qnnctx.build.quantize.calibration_inputs import load_calibration
from pytest_qnnctx.build.quantize.coverage import Coverage, check_coverage, require_coverage
from pytest_qnnctx.build.quantize.encodings import Encoding, EncodingsFile, parse_encodings
from pytest_qnnctx.build.quantize.expected import (
    ExpectedEncoding,
    is_qdq,
    quantization_text,
    read_expected,
    weight_names,
)
from pytest_qnnctx.build.quantize.gaps import activation_bits, encodings_from_ranges, gaps
from pytest_qnnctx.build.quantize.graph import view
from pytest_qnnctx.build.quantize.qdq import insert_qdq
from pytest_qnnctx.build.quantize.shapes import fix_shapes, input_shapes
from pytest_qnnctx.build.quantize.simplify import Simplified, simplify
from pytest_qnnctx.errors import Finding, UsageError
from pytest_qnnctx.model import EncodingsUse, Model, Target

if TYPE_CHECKING:
    from onnx import ModelProto

    from pytest_qnnctx.build.toolchain import Progress
    from pytest_qnnctx.model import Sample

__all__ = ["ExpectedEncoding", "PreparedModel", "prepare"]


@dataclass(frozen=True)
class PreparedModel:
    """What to compile.

    ``path`` is an ONNX with fixed shapes and float32 inputs and outputs: in the build's directory,
    or the model's own where nothing had to change. ``quantization`` is "w8a16", "w8a8", "float32".
    ``use`` tells how the encodings were used (version "QDQ": they came with the ONNX), None where
    there were none. ``expected`` maps a tensor's original name to the encoding it is meant to be
    compiled with. ``findings`` are worth saying, but no failure.
    """

    path: Path
    quantization: str
    use: EncodingsUse | None = None
    expected: Mapping[str, ExpectedEncoding] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def prepare(model: Model, target: Target, workdir: Path, progress: Progress) -> PreparedModel:
    """Fix shapes and quantize ``model`` for ``target``, in ``workdir``.

    A QDQ ONNX is taken as it is; an FP32 one is quantized by its AIMET encodings, or else from its
    calibration inputs, or else left float32 for the compiler to judge. Where encodings and
    calibration are both given, the calibration supplies ranges for the activations that the
    encodings leave out. Raises UsageError for a call that makes no sense or a file that is not
    there, ProductFailure where model, encodings and target do not fit together, with every finding.
    """
    proto = load_model(model.path)
    if is_qdq(proto):
        return _as_is(model, proto, workdir, progress)
    encodings = None if model.encodings is None else parse_encodings(model.encodings)
    changed = fix_shapes(proto, model.input_shapes, name=model.name)
    view(proto)  # raises where the graph is broken
    if encodings is not None:
        return _from_encodings(_Job(model, target, workdir, progress), proto, encodings)
    if model.calibration is None:
        fixed = save_model(proto, workdir / "fixed.onnx") if changed else model.path
        return PreparedModel(fixed, "float32")
    samples = _samples(model, proto)
    simplify(proto, {})
    fixed = save_model(proto, workdir / "fixed.onnx")
    path = quantize_with_calibration(fixed, samples, workdir, name=model.name, progress=progress)
    return _read_back(path)


def kept_model(prepared: PreparedModel, workdir: Path) -> Path | None:
    """A copy of the quantized ONNX, its weights inside, to be kept beside the binary.

    None where it is not quantized, or larger than one file can be (2 GB).
    """
    from pytest_qnnctx.build.onnx_graph import LARGEST_ONNX_BYTES

    if prepared.quantization == "float32":
        return None
    proto = load_model(prepared.path)
    if proto.ByteSize() > LARGEST_ONNX_BYTES:
        return None
    return save_model(proto, workdir / "kept.onnx")


def _as_is(model: Model, proto: ModelProto, workdir: Path, progress: Progress) -> PreparedModel:
    if model.encodings is not None:
        raise UsageError(
            f"model {model.name!r} is already quantized (its ONNX holds Q/DQ nodes), "
            f"so the encodings {model.encodings} have nothing to apply to",
            next_step="give the FP32 ONNX with the encodings, or the QDQ ONNX alone",
        )
    changed = fix_shapes(proto, model.input_shapes, name=model.name)
    view(proto)  # raises where the graph is broken
    path = save_model(proto, workdir / "fixed.onnx") if changed else model.path
    expected = read_expected(proto)
    findings: tuple[Finding, ...] = ()
    if model.calibration is not None:
        findings = _unused_calibration(model, "its ONNX is already quantized", progress)
    return PreparedModel(
        path,
        quantization_text(expected, weight_names(proto)),
        EncodingsUse("QDQ", len(expected)),
        expected,
        findings,
    )


def _read_back(path: Path) -> PreparedModel:
    proto = load_model(path, with_weights=False)
    expected = read_expected(proto)
    return PreparedModel(path, quantization_text(expected, weight_names(proto)), expected=expected)


def _samples(model: Model, proto: ModelProto) -> list[Sample]:
    from onnx import helper

    types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
    inputs = {
        name: (
            helper.tensor_dtype_to_np_dtype(types[name]),
            tuple(dim for dim in shape if isinstance(dim, int)),
        )
        for name, shape in input_shapes(proto).items()
    }
    assert model.calibration is not None
    return load_calibration(model.calibration, inputs)


def _unused_calibration(model: Model, why: str, progress: Progress) -> tuple[Finding, ...]:
    message = f"the calibration inputs of model {model.name!r} are not used: {why}"
    progress(message)
    return (Finding("calibration_unused", model.name, message, "leave calibration= out"),)


# --- encodings --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    model: Model
    target: Target
    workdir: Path
    progress: Progress


def _from_encodings(job: _Job, proto: ModelProto, encodings: EncodingsFile) -> PreparedModel:
    model, target, workdir, progress = job.model, job.target, job.workdir, job.progress
    progress(f"applying the encodings of {model.name}")
    simplified = simplify(proto, encodings.entries)
    check = _checker(proto, encodings, simplified, target)
    coverage = check({})
    findings: tuple[Finding, ...] = ()
    calibrated: Sequence[str] = ()
    if model.calibration is not None:
        calibrated = gaps(coverage)
        if calibrated:
            coverage = check(_fill(job, proto, coverage, calibrated))
        else:
            why = "the encodings cover every activation"
            if coverage.findings:
                why = "the encodings do not fit the model"
            findings = _unused_calibration(model, why, progress)
    require_coverage(coverage, model.name, encodings.path, target)
    insert_qdq(proto, coverage)
    path = save_model(proto, workdir / "qdq.onnx")
    text = quantization_text(read_expected(proto), weight_names(proto))
    use = EncodingsUse(
        version=encodings.version,
        total=len(encodings.entries),
        inherited=tuple(n for n in coverage.inherited if n not in simplified.made),
        derived=(
            *dict.fromkeys(b.name for b in coverage.derived if b.name not in simplified.made),
            *(f"{name} (range from calibration)" for name in calibrated),
        ),
        uncovered=coverage.uncovered,
    )
    return PreparedModel(path, text, use, _expected(encodings, coverage), findings)


def _checker(
    proto: ModelProto, encodings: EncodingsFile, simplified: Simplified, target: Target
) -> Callable[[Mapping[str, Encoding]], Coverage]:
    graph = view(proto)

    def check(more: Mapping[str, Encoding]) -> Coverage:
        entries = {**simplified.entries, **more}
        coverage = check_coverage(
            graph, replace(encodings, entries=entries), target, gone=simplified.gone
        )
        own = encodings.entries
        return replace(
            coverage,
            total=len(own),
            matched=tuple(name for name in coverage.matched if name in own),
        )

    return check


def _fill(
    job: _Job, proto: ModelProto, coverage: Coverage, missing: Sequence[str]
) -> dict[str, Encoding]:
    from onnx import numpy_helper

    constants = {t.name: t for t in proto.graph.initializer if t.name in missing}
    ranges = {}
    for name, tensor in constants.items():
        values = numpy_helper.to_array(tensor)
        ranges[name] = (float(values.min(initial=0)), float(values.max(initial=0)))
    active = [name for name in missing if name not in constants]
    if active:
        samples = _samples(job.model, proto)
        source = save_model(proto, job.workdir / "simplified.onnx")
        if any(tensor.data_location == tensor.EXTERNAL for tensor in proto.graph.initializer):
            proto.CopyFrom(load_model(source))  # saving a big model moved its weights away
        ranges.update(
            observe_ranges(
                source, samples, active, job.workdir, name=job.model.name, progress=job.progress
            )
        )
    return encodings_from_ranges(ranges, activation_bits(coverage))


def _expected(encodings: EncodingsFile, coverage: Coverage) -> dict[str, ExpectedEncoding]:
    """Each integer entry of the file, in the form in which the graph was given it."""
    expected = {}
    for name, entry in encodings.entries.items():
        if entry.is_float:
            continue
        given = coverage.assigned.get(name, entry)
        expected[name] = ExpectedEncoding(
            given.scale, given.zero_point, given.bits, given.signed, given.axis
        )
    return expected
