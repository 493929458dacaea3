"""What the SDK's converter and quantizer are given for a model, checked before they see it.

The SDK drops encodings that match no tensor without a word, and leaves tensors without any in
float. So the encodings are held against the model here first (the package ``quantize``), although
the SDK applies them itself. Dynamic shapes are fixed here too: every version takes such a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.build.onnx_file import external_data, load_model, save_model
from pytest_qnnctx.build.onnx_graph import float_nodes, name_nodes
from pytest_qnnctx.build.quantize.calibration_inputs import load_calibration
from pytest_qnnctx.build.quantize.expected import is_qdq
from pytest_qnnctx.build.quantize.prepare import PreparedModel, prepare
from pytest_qnnctx.build.quantize.shapes import fix_shapes, input_shapes
from pytest_qnnctx.errors import BuildFailed, Finding, InfrastructureError, ProductFailure
from pytest_qnnctx.model import Model, Target

if TYPE_CHECKING:
    from onnx import ModelProto

    from pytest_qnnctx.build.toolchain import Progress
    from pytest_qnnctx.model import Sample

FLOAT32 = "float32"
#: What the quantizer is told to make of tensors for which it has calibration inputs alone.
_CALIBRATED = "w8a8"
_TEXT = re.compile(r"w(\d[\d,]*)a(\d[\d,]*)")


@dataclass(frozen=True)
class RawCalibration:
    """Calibration inputs as files: ``lines`` has for each inference its inputs' file names in
    ``folder``, with the input's name: float32, in the model's own layout.
    """

    folder: Path
    lines: tuple[tuple[tuple[str, str], ...], ...]

    def text(self) -> str:
        """The input list, as qnn-net-run and the quantizer read it in the folder's parent.

        Words are parted by spaces, so that paths are relative (a cache's path may hold some), and
        an input whose name cannot be a word is given by its position.
        """
        names = {name for line in self.lines for name, _ in line}
        bare = any(":=" in name or len(name.split()) != 1 for name in names)
        return "".join(
            " ".join(
                f"{'' if bare else name + ':='}{self.folder.name}/{file}" for name, file in line
            )
            + "\n"
            for line in self.lines
        )


@dataclass(frozen=True)
class QairtInputs:
    """``network`` with the files ``beside`` it goes to the converter, with ``overrides``.

    ``calibration`` goes to the quantizer. ``prepared`` is what our own check made of model and
    encodings, None where the SDK's quantizer alone decides. ``quantization`` as in BuildProduct.
    """

    network: Path
    beside: Mapping[str, Path]
    quantization: str
    overrides: Path | None = None
    calibration: RawCalibration | None = None
    prepared: PreparedModel | None = None

    @property
    def bits(self) -> tuple[int, int]:
        """Weight and activation bits for tensors that only calibration covers: the widest used."""
        found = _TEXT.fullmatch(self.quantization)
        if found is None:
            return 8, 8
        weights, activations = (max(map(int, text.split(","))) for text in found.groups())
        return weights, activations

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the check found worth saying."""
        return () if self.prepared is None else self.prepared.findings


def gather_inputs(model: Model, target: Target, workdir: Path, progress: Progress) -> QairtInputs:
    """Check ``model`` and write what the SDK is given to ``workdir``.

    Raises as :func:`~pytest_qnnctx.build.quantize.prepare.prepare` does, and BuildFailed for a
    model without encodings and calibration on a target that cannot compute in float.
    """
    proto = load_model(model.path)
    calibration = _write_calibration(model, proto, workdir) if model.calibration else None
    quantized = is_qdq(proto)
    if quantized or (model.encodings is None and calibration is None):
        # The SDK's quantizer may use calibration inputs; our own check needs none of them.
        prepared = prepare(replace(model, calibration=None), target, workdir, progress)
        if prepared.quantization == FLOAT32 and target.has_float is False:
            raise _nothing_to_quantize_by(model, target, proto)
        return _inputs(prepared.path, prepared.quantization, calibration, prepared)
    checked = None if model.encodings is None else _checked(model, target, workdir, progress)
    network = model.path
    if fix_shapes(proto, model.input_shapes, name=model.name):
        network = save_model(proto, workdir / "fixed_shapes.onnx")
    text = _CALIBRATED if checked is None else checked.quantization
    return replace(_inputs(network, text, calibration, checked), overrides=model.encodings)


def _inputs(
    network: Path, text: str, calibration: RawCalibration | None, prepared: PreparedModel | None
) -> QairtInputs:
    named = external_data(load_model(network, with_weights=False), network)
    beside = {path.relative_to(network.parent).as_posix(): path for path in named}
    return QairtInputs(network, beside, text, calibration=calibration, prepared=prepared)


def _checked(model: Model, target: Target, workdir: Path, progress: Progress) -> PreparedModel:
    """The encodings held against the model; calibration fills gaps only where there are any."""
    if model.calibration is not None:
        with suppress(ProductFailure):
            alone = prepare(replace(model, calibration=None), target, workdir, progress)
            if alone.use is not None and not alone.use.uncovered:
                return alone
    return prepare(model, target, workdir, progress)


def _nothing_to_quantize_by(model: Model, target: Target, proto: ModelProto) -> BuildFailed:
    name_nodes(proto)
    floating = float_nodes(proto)
    findings = [
        Finding(
            "float_op",
            f"{node.name} ({node.op_type})",
            f"{node.op_type} '{node.name}' computes in floating point, which HTP "
            f"{target.htp_arch} of {target.soc} cannot do",
            "quantize it: give the model encodings=FILE, or calibration= inputs",
        )
        for node in proto.graph.node
        if node.name in floating
    ]
    count = "1 node" if len(findings) == 1 else f"{len(findings)} nodes"
    return BuildFailed(
        f"{model.name} ({model.path.name}) does not compile for {target}: {count} in floating "
        "point, and neither encodings nor calibration inputs to quantize by",
        next_step="give the model encodings=FILE, or calibration= inputs",
        findings=findings,
    )


def _write_calibration(model: Model, proto: ModelProto, workdir: Path) -> RawCalibration:
    """The samples as raw float32 files, which is how the SDK's tools read every input."""
    import numpy as np

    samples = _samples(model, proto)
    folder = workdir / "calibration"
    lines = []
    try:
        folder.mkdir()
        for index, sample in enumerate(samples):
            line = []
            for position, (name, values) in enumerate(sample.items()):
                file = f"{index}_{position}.raw"
                raw = np.ascontiguousarray(values, dtype="<f4")
                (folder / file).write_bytes(raw.tobytes())
                line.append((name, file))
            lines.append(tuple(line))
    except OSError as error:
        raise InfrastructureError(
            f"cannot write the calibration inputs of {model.name} to '{folder}': "
            f"{error.strerror or error}",
            next_step="free some space, or choose another directory with --qnnctx-cache-dir",
        ) from None
    return RawCalibration(folder, tuple(lines))


def _samples(model: Model, proto: ModelProto) -> Sequence[Sample]:
    from onnx import helper

    assert model.calibration is not None
    types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
    stated = {**input_shapes(proto), **model.input_shapes}
    if any(not isinstance(dim, int) for shape in stated.values() for dim in shape):
        fix_shapes(proto, model.input_shapes, name=model.name)  # raises, naming the inputs
    inputs = {
        name: (
            helper.tensor_dtype_to_np_dtype(types[name]),
            tuple(dim for dim in shape if isinstance(dim, int)),
        )
        for name, shape in stated.items()
        if name in types
    }
    return load_calibration(model.calibration, inputs)
