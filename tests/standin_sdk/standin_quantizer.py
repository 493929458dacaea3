"""The stand-in's ``qairt-quantizer``: a DLC's overrides, or calibration, become a quantized DLC.

The work is this project's own preparation of a QDQ ONNX. Where a tensor has no encoding, and no
calibration gives one, the ops around it stay in floating point, as with the real tool.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standin_dlc import Dlc, NotADlc, read_dlc, write_dlc
from standin_flags import add_all, parser
from standin_log import converter_line
from standin_overrides import names_of, widened, without

if TYPE_CHECKING:
    from onnx import ModelProto
    from standin_tools import Tool


def run(tool: Tool) -> int:
    """Quantize; 0, or 1 with an ERROR line."""
    asked = _parse(tool)
    if asked.version:
        print(tool.release.build_id)
        return 0
    fallback = asked.float_fallback
    if tool.release.one_of_list_and_fallback and bool(asked.input_list) == fallback:
        return _error(
            f"{tool.release.float_fallback} and --input_list are mutually exclusive options. One "
            "of them is mandatory"
        )
    source = Path(asked.input_dlc)
    output = Path(asked.output_dlc or source.with_name(f"{source.stem}_quantized.dlc"))
    try:
        dlc = read_dlc(source)
    except (NotADlc, OSError) as error:
        return _error(f"Failed to open the input DLC: {error}")
    overrides = dlc.note.overrides
    tool.die_if_told()
    if lost := tool.quirks.get("drop_encodings"):
        overrides = without(overrides, lost)
    if other := tool.quirks.get("recompute_encodings"):
        overrides = widened(overrides, other)
    if fallback and not dlc.note.overrides and not _is_quantized(dlc):
        # A note on 2.48: the fallback fills what given encodings leave out, and is none by itself.
        return _error(
            "fallbackToFloat: Use float fallback flag when user specify encodings through "
            "`--quantization_overrides` or input network contains framework trained QAT encodings"
        )
    with tempfile.TemporaryDirectory(prefix="standin_quantizer_") as scratch:
        job = _Job(tool, dlc, overrides, asked, Path(scratch))
        try:
            model = job.quantize()
        except Exception as error:
            return _error(f"{type(error).__name__}: {error}")
    if fallback or tool.has_quirk("fallback_lines"):
        _name_float_ops(model)
    command = " ".join(["qairt-quantizer", *tool.argv])
    note = replace(dlc.note, stage="quantizer", quantizer_command=command, overrides={})
    write_dlc(output, model, note)
    converter_line(f"Quantized Model saved at: {output} ")
    converter_line("Quantization completed successfully")
    return 0


def _parse(tool: Tool) -> argparse.Namespace:
    release = tool.release
    made = parser("qairt-quantizer", "Quantizes a DLC.")
    if "--version" in tool.argv:
        made.add_argument("--version", action="store_true")
    else:
        made.set_defaults(version=False)
        required = made.add_argument_group("required arguments")
        required.add_argument(
            "--input_dlc", "-i", required=True, help="Path to the DLC of the unquantized model."
        )
    made.add_argument("--output_dlc", "-o", help="Path for the quantized DLC.")
    note = (
        f" {release.float_fallback} and --input_list are mutually exclusive options. One of them "
        "is mandatory."
        if release.one_of_list_and_fallback
        else ""
    )
    made.add_argument(
        "--input_list", "-l", help="A file with one inference's raw input files a line." + note
    )
    made.add_argument(
        release.float_fallback,
        dest="float_fallback",
        action="store_true",
        help="Tensors without quantization parameters fall back to floating point." + note,
    )
    for flag, dest, default in (
        (release.act_bits, "act_bits", 8),
        (release.weight_bits, "weight_bits", 8),
        (release.bias_bits, "bias_bits", 32),
    ):
        made.add_argument(flag, dest=dest, type=int, default=default, help=f"Default {default}.")
    for flag in (
        *("--use_per_channel_quantization", "--use_per_row_quantization", "--pack_4_bit_weights"),
        *("--ignore_quantization_overrides", "--keep_weights_quantized"),
        *("--use_native_input_files", "--dump_encoding_json"),
    ):
        made.add_argument(flag, action="store_true", help="taken, and not used by the stand-in")
    made.add_argument("--preserve_io_datatype", nargs="*", help="Keep these tensors' data type.")
    calibration = ("--act_quantizer_calibration", "--param_quantizer_calibration")
    schema = ("--act_quantizer_schema", "--param_quantizer_schema")
    add_all(made, (*calibration, *schema, "--float_bitwidth", "--algorithms", "--target_backend"))
    return made.parse_args(list(tool.argv))


def _error(message: str) -> int:
    converter_line(f"Encountered Error: {message}", "ERROR")
    return 1


def _is_quantized(dlc: Dlc) -> bool:
    from pytest_qnnctx.build.quantize.expected import is_qdq

    return is_qdq(dlc.model())


class _Job:
    """One quantization, in a scratch directory."""

    def __init__(
        self,
        tool: Tool,
        dlc: Dlc,
        overrides: dict[str, Any],
        asked: argparse.Namespace,
        scratch: Path,
    ) -> None:
        self._tool, self._dlc, self._asked, self._scratch = tool, dlc, asked, scratch
        self._overrides = overrides
        self._list = Path(asked.input_list).absolute() if asked.input_list else None

    def quantize(self) -> ModelProto:
        """The QDQ model; a float one where there is nothing to quantize it by."""
        import onnx

        source = self._scratch / "model.onnx"
        source.write_bytes(self._dlc.onnx)
        if _is_quantized(self._dlc):
            return self._dlc.model()
        if names_of(self._overrides):
            return self._by_encodings(source)
        if self._list is None:
            converter_line("Skipping quantization, no input_list provided")
            return self._dlc.model()
        return onnx.load(str(self._by_calibration(source)))

    def _by_encodings(self, source: Path) -> ModelProto:
        import onnx

        from pytest_qnnctx.build.quantize.prepare import prepare
        from pytest_qnnctx.errors import ProductFailure
        from pytest_qnnctx.model import Model

        encodings = self._scratch / "model.encodings"
        encodings.write_text(json.dumps(self._overrides))
        model = Model(source, encodings=encodings, calibration=self._list)
        try:
            prepared = prepare(model, _target(), self._scratch, _quiet)
            return onnx.load(str(prepared.path))
        except ProductFailure as refused:
            if self._list is not None:
                return onnx.load(str(self._by_calibration(source)))
            if not any(f.kind == "tensor_uncovered" for f in refused.findings):
                raise
        return self._with_islands(source, encodings)

    def _with_islands(self, source: Path, encodings: Path) -> ModelProto:
        """Quantize what has encodings and leave the rest float."""
        import onnx

        from pytest_qnnctx.build.quantize.coverage import check_coverage
        from pytest_qnnctx.build.quantize.encodings import parse_encodings
        from pytest_qnnctx.build.quantize.graph import view
        from pytest_qnnctx.build.quantize.qdq import insert_qdq
        from pytest_qnnctx.build.quantize.simplify import simplify

        proto = onnx.load(str(source))
        given = parse_encodings(encodings)
        simplified = simplify(proto, given.entries)
        entries = replace(given, entries=simplified.entries)
        insert_qdq(proto, check_coverage(view(proto), entries, _target(), gone=simplified.gone))
        return proto

    def _by_calibration(self, source: Path) -> Path:
        import onnx
        from onnx import helper

        from pytest_qnnctx.build.onnx_file import save_model
        from pytest_qnnctx.build.quantize.calibrate import quantize_with_calibration
        from pytest_qnnctx.build.quantize.calibration_inputs import load_calibration
        from pytest_qnnctx.build.quantize.shapes import input_shapes
        from pytest_qnnctx.build.quantize.simplify import simplify

        assert self._list is not None
        proto = onnx.load(str(source))
        types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
        inputs = {
            name: (helper.tensor_dtype_to_np_dtype(types[name]), tuple(map(int, shape)))
            for name, shape in input_shapes(proto).items()
        }
        samples = load_calibration(self._list, inputs)
        simplify(proto, {})
        fixed = save_model(proto, self._scratch / "fixed.onnx")
        return quantize_with_calibration(
            fixed,
            samples,
            self._scratch,
            name="model",
            progress=_quiet,
            activation_bits=self._asked.act_bits,
        )


def _target() -> Any:
    from pytest_qnnctx.model import Target

    return Target("QCS6490", "v68", 93, 2, has_float=False)


def _quiet(message: str) -> None:
    del message


def _name_float_ops(model: ModelProto) -> None:
    from pytest_qnnctx.build.onnx_graph import float_nodes, name_nodes

    named = type(model)()
    named.CopyFrom(model)
    name_nodes(named)
    floating = float_nodes(named)
    for node in named.graph.node:
        if node.name in floating:
            converter_line(
                f"Float fallback: op {node.name} of type {node.op_type} stays in Float_32",
                "WARNING",
            )
