"""The stand-in's ``qairt-converter``: an ONNX and overrides become a DLC."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standin_dlc import Note, write_dlc
from standin_flags import add_all, parser
from standin_log import converter_line
from standin_overrides import names_of, read_overrides, without

if TYPE_CHECKING:
    import argparse

    from onnx import ModelProto
    from standin_tools import Tool

#: Ops whose output's shape depends on values.
_DATA_DEPENDENT = frozenset({"NonZero", "Unique", "NonMaxSuppression", "Compress", "Loop", "Scan"})


def run(tool: Tool) -> int:
    """Convert; 0, or 1 with an ERROR line."""
    asked = _parse(tool)
    if asked.version:
        print(tool.release.build_id)
        return 0
    source = Path(asked.input_network)
    output = Path(asked.output_path) if asked.output_path else source.with_suffix(".dlc")
    if tool.has_quirk("converter_copy_error"):
        return _error(
            "Failed to copy external data to the disk at: /tmp/standin_tmp. It may be due to "
            "permission or space issue."
        )
    if tool.has_quirk("converter_crash"):
        raise RuntimeError("ERROR_LAYER_NOT_FOUND: internal error of the converter")
    try:
        model = _load(source)
    except Exception as error:
        return _error(f"{type(error).__name__}: {error}")
    if message := _dynamic(model, asked.source_model_input_shape or []):
        return _error(message)
    converter_line("Simplified model validation is successful")
    tool.die_if_told()
    if tool.has_quirk("converter_exits_early"):
        return 0
    overrides: dict[str, Any] = {}
    if asked.quantization_overrides:
        try:
            overrides = read_overrides(Path(asked.quantization_overrides))
        except (OSError, ValueError) as error:
            return _error(f"cannot read the quantization overrides: {error}")
        overrides = _matching(tool, model, overrides)
    converter_line("Saving QNN Model...")
    name = tool.quirks.get("graph_name") or _graph_name(output)
    command = " ".join(["qairt-converter", *tool.argv])
    note = Note("converter", str(name), tool.release.version, command, overrides=overrides)
    write_dlc(output, model, note)
    converter_line(f"Model saved at: {output} ")
    converter_line("INFO_CONVERSION_SUCCESS: Conversion completed successfully")
    converter_line("Conversion complete!")
    return 0


def _parse(tool: Tool) -> argparse.Namespace:
    made = parser("qairt-converter", "Converts a source model to a DLC.")
    if "--version" in tool.argv:
        made.add_argument("--version", action="store_true")
    else:
        made.set_defaults(version=False)
        required = made.add_argument_group("required arguments")
        required.add_argument(
            "--input_network", "-i", required=True, help="Path to the source framework model."
        )
    made.add_argument("--output_path", "-o", help="Path where the converted model is saved.")
    made.add_argument(
        "--quantization_overrides",
        "-q",
        help="A json file with parameters to use for quantization, in AIMET's format.",
    )
    made.add_argument(
        *tool.release.input_shape,
        dest="source_model_input_shape",
        nargs=2,
        action="append",
        metavar=("INPUT_NAME", "INPUT_DIM"),
        help="Name and dimensions of an input, such as 'data' 1,224,224,3.",
    )
    made.add_argument("--preserve_io_datatype", nargs="*", help="Keep these tensors' data type.")
    made.add_argument("--preserve_io", nargs="*", help="Keep layout or data type of these.")
    for flag in ("--onnx_skip_simplification", "--keep_weights_quantized"):
        made.add_argument(flag, action="store_true", help="taken, and not used by the stand-in")
    for flag in ("--dry_run", "--debug"):
        made.add_argument(flag, nargs="?", help="taken, and not used by the stand-in")
    for flag in ("--source_model_input_layout", "--desired_input_layout", "--onnx_define_symbol"):
        made.add_argument(
            flag, nargs=2, action="append", help="taken, and not used by the stand-in"
        )
    add_all(
        made,
        (
            *("--float_bitwidth", "--float_bias_bitwidth", "--export_format", "--config"),
            *("--out_tensor_node", "--target_backend", "--target_soc_model"),
        ),
    )
    return made.parse_args(list(tool.argv))


def _error(message: str) -> int:
    converter_line(f"Encountered Error: {message}", "ERROR")
    return 1


def _load(source: Path) -> ModelProto:
    import onnx

    model = onnx.load(str(source))
    onnx.checker.check_model(model)
    return model


def _dynamic(model: ModelProto, given: list[list[str]]) -> str:
    """The error for what has no fixed shape; shapes that are ``given`` are put in."""
    from pytest_qnnctx.build.quantize.shapes import fix_shapes, input_shapes

    wanted = {name: tuple(int(n) for n in dims.split(",")) for name, dims in given}
    dynamic = [
        name
        for name, shape in input_shapes(model).items()
        if name not in wanted and not all(isinstance(dim, int) for dim in shape)
    ]
    if dynamic:
        return f"Missing command line inputs for dynamic inputs {dynamic}"
    if wanted:
        try:
            fix_shapes(model, wanted, name="model")
        except Exception as error:
            return str(error)
    for node in model.graph.node:
        if node.op_type in _DATA_DEPENDENT:
            return f"{node.name or node.op_type}: Dynamic value for {node.output[0]}"
    return ""


def _matching(tool: Tool, model: ModelProto, overrides: dict[str, Any]) -> dict[str, Any]:
    """The overrides that belong to a tensor of the model; the rest is skipped, and named."""
    graph = model.graph
    known = {i.name for i in (*graph.input, *graph.initializer)}
    known |= {name for node in graph.node for name in node.output}
    names = names_of(overrides)
    skipped = [name for name in names if name not in known]
    if not tool.has_quirk("skips_silently"):
        for name in skipped:
            converter_line(
                f"Skipping quantization override for tensor {name}: not found in the graph",
                "WARNING",
            )
    converter_line(f"Processed {len(names) - len(skipped)} quantization encodings")
    return without(overrides, skipped)


def _graph_name(output: Path) -> str:
    """The graph is called as the DLC is, in letters that an identifier may have."""
    return re.sub(r"\W", "_", output.name.removesuffix(".dlc"))


if __name__ == "__main__":
    sys.exit("run it by the SDK's bin directory")
