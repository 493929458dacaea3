"""The stand-in's ``qairt-dlc-info``: ops, tensors and encodings of a DLC, as the real one lays out.

The form is that of public dumps: one table of ops, whose Parameters column begins with the
encodings of what the op reads from outside, of its constants and of what it makes; tables of inputs
and outputs; totals. Dimensions are the ONNX model's own.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from standin_dlc import Dlc, NotADlc, read_dlc
from standin_flags import parser
from standin_quick_onnx import use_quick_onnx

if TYPE_CHECKING:
    from onnx import ModelProto
    from standin_tools import Tool

    from pytest_qnnctx.build.quantize.expected import ExpectedEncoding

_NO_ENCODING = "No encoding info for this tensor"
_HEADERS = ("Id", "Name", "Type", "Inputs", "Outputs", "Out Dims", "Runtimes", "Parameters")
_OPS = {"Conv": "Conv2d", "Gemm": "FullyConnected", "Relu": "ElementWiseNeuron",
        "Sigmoid": "ElementWiseNeuron", "Tanh": "ElementWiseNeuron", "Add": "Eltwise_Binary",
        "Mul": "Eltwise_Binary", "Sub": "Eltwise_Binary", "Clip": "ReluMinMax"}  # fmt: skip
_WITH_BIAS = frozenset({"Conv", "ConvTranspose", "Gemm"})
_PLAIN_TYPES = {1: "Float_32", 10: "Float_16", 6: "Int_32", 7: "Int_64", 9: "Bool_8",
                2: "Uint_8", 3: "Int_8", 4: "Uint_16", 5: "Int_16"}  # fmt: skip


def run(tool: Tool) -> int:
    """Print; 0, or 1 with an error."""
    asked = _parse(tool)
    path = Path(asked.input_dlc)
    try:
        dlc = read_dlc(path)
    except (NotADlc, OSError) as error:
        print(f"Error: unable to open {path}: {error}", file=sys.stderr)
        return 1
    if not dlc.note.narrow:
        use_quick_onnx()
    lines = describe(path, dlc, all_channels=asked.display_all_encodings)
    if asked.save:
        Path(asked.save).write_text("\n".join(lines) + "\n")
    else:
        print("\n".join(lines))
    return 0


def _parse(tool: Tool) -> argparse.Namespace:
    made = parser("qairt-dlc-info", "Prints what is in a DLC.")
    made.add_argument("-i", "--input_dlc", required=True, help="Path to a DLC file.")
    made.add_argument("-s", "--save", help="Save the output to this file.")
    made.add_argument("-d", "--display_all_encodings", action="store_true", help="All channels'.")
    made.add_argument("-m", "--display_memory", action="store_true", help="Not used.")
    return made.parse_args(list(tool.argv))


def describe(path: Path, dlc: Dlc, *, all_channels: bool = False) -> list[str]:
    """The whole text, line by line."""
    content = _Content(dlc.model())
    note = dlc.note
    rows = content.rows(all_channels)
    lines = [
        f"DLC info of: {path.absolute()}",
        " " * 100,
        "Model Version: N/A",
        "Model Copyright:N/A",
        f"Converter command: {note.converter_command}",
        f"Quantizer command: {note.quantizer_command}",
        f"Converter version: {note.version}",
        "=" * 80,
        f"Info of graph: {note.graph}",
        *_table(_HEADERS, rows),
        "Note: The supported runtimes column assumes a processor target of Snapdragon 855",
        "Key : A:AIP",
        "      D:DSP",
        "      G:GPU",
        "      C:CPU",
        "",
    ]
    for title, names in (("Input Name", content.inputs), ("Output Name", content.outputs)):
        lines += _table(
            (title, "Dimensions", "Type", "Encoding Info"),
            [[n, content.dims(n), content.type(n), content.info(n)] for n in names],
        )
    kinds = sorted({row[2] for row in rows if row[2]})
    lines += [
        f"Total parameters: {content.parameters} "
        f"({content.parameters * 4 // 2**20} MB assuming single precision float.)",
        "Total MACs per inference: 0 (0%)",
        f"Ops used by Graph: {', '.join(kinds)}",
    ]
    return lines


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in (headers, *rows)) + 1 for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        return "".join(f"| {c:<{w}}" for c, w in zip(cells, widths, strict=True)) + "|"

    rule = "-" * len(line(headers))
    return [rule, line(headers), rule, *map(line, rows), rule]


@dataclass(frozen=True)
class _Op:
    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class _Content:
    """The graph without its Q/DQ nodes: tensors have their own names and integer types."""

    def __init__(self, model: ModelProto) -> None:
        from pytest_qnnctx.build.quantize.expected import DEQUANTIZE, QUANTIZE, read_expected

        graph = model.graph
        self._origin = _origins(model)
        self._encodings = _with_fused(model, read_expected(model), self._origin)
        self._shapes, self._types = _shapes_and_types(model)
        constants = {i.name for i in graph.initializer}
        self.inputs = [i.name for i in graph.input if i.name not in constants]
        self.outputs = [o.name for o in graph.output]
        self.parameters = 0
        self._made: set[str] = set()
        self._ops = []
        for index, node in enumerate(graph.node):
            if node.op_type in (QUANTIZE, DEQUANTIZE, "Constant"):
                continue
            outputs = tuple(self._origin.get(n, n) for n in node.output if n)
            self._made.update(outputs)
            inputs = tuple(self._origin.get(n, n) for n in node.input if n)
            kind = _OPS.get(node.op_type, node.op_type)
            self._ops.append(_Op(node.name or f"{node.op_type}_{index}", kind, inputs, outputs))

    def rows(self, all_channels: bool) -> list[list[str]]:
        """The table's rows; lines of an op after its first have no id, name and type."""
        rows = []
        for index, op in enumerate(self._ops):
            reads = [
                self._tensor(n) + (" [NW Input]" if n in self.inputs else "") for n in op.inputs
            ]
            makes = [self._tensor(n) for n in op.outputs]
            dims = [self.dims(n).replace(",", "x") for n in op.outputs]
            shown = [n for n in op.inputs if n in self.inputs]
            shown += [n for n in op.inputs if self._is_static(n)] + list(op.outputs)
            parameters = [line for n in shown for line in self._encoding_lines(n, all_channels)]
            parameters.append("packageName: qti.aisw")
            height = max(map(len, (reads, makes, parameters)))
            for line in range(height):
                first = line == 0
                rows.append(
                    [
                        str(index) if first else "",
                        op.name if first else "",
                        op.kind if first else "",
                        _at(reads, line),
                        _at(makes, line),
                        _at(dims, line),
                        "A D G C" if first else "",
                        _at(parameters, line),
                    ]
                )
        return rows

    def _is_static(self, name: str) -> bool:
        return name not in self._made and name not in self.inputs

    def dims(self, name: str) -> str:
        return ",".join(map(str, self._shapes.get(name, ())))

    def type(self, name: str) -> str:
        """``uFxp_8`` and the like where it is quantized, ``Float_32`` where it is not."""
        if encoding := self._encodings.get(name):
            return f"{'s' if encoding.signed else 'u'}Fxp_{encoding.bits}"
        return _PLAIN_TYPES.get(self._types.get(name, 1), "Float_32")

    def info(self, name: str) -> str:
        lines = _encoding_text(self._encodings[name]) if name in self._encodings else []
        return lines[0] if lines else _NO_ENCODING

    def _tensor(self, name: str) -> str:
        kind = "NATIVE"
        if name in self.inputs:
            kind = "APP_WRITE"
        elif name in self.outputs:
            kind = "APP_READ"
        elif self._is_static(name):
            kind = "STATIC"
        return (
            f"{name} (data type: {self.type(name)}; tensor dimension: [{self.dims(name)}]; "
            f"tensor type: {kind})"
        )

    def _encoding_lines(self, name: str, all_channels: bool) -> list[str]:
        encoding = self._encodings.get(name)
        if encoding is None:
            return []
        texts = _encoding_text(encoding)
        if len(texts) == 1 and encoding.axis is None:
            return [f"{name} encoding : {texts[0]}"]
        count = len(texts)
        shown = texts if all_channels else texts[:1]
        lines = [f"{name} encoding for channel_{i}: {text}" for i, text in enumerate(shown)]
        only = f" (above encoding is only for the first (channel_0) of {count} channels)"
        return [
            *lines,
            f"axis-quant: axis: {encoding.axis}, num_elements: {count}"
            + ("" if all_channels or count == 1 else only),
        ]


def _encoding_text(encoding: ExpectedEncoding) -> list[str]:
    """One text a channel; 12 decimals, which is all that the real tool prints of a scale."""
    low = -(2 ** (encoding.bits - 1)) if encoding.signed else 0
    high = low + 2**encoding.bits - 1
    texts = []
    for scale, zero in zip(encoding.scale, encoding.zero_point, strict=True):
        least, most = (low - zero) * scale, (high - zero) * scale
        texts.append(
            f"bitwidth {encoding.bits}, min {least:.12f}, max {most:.12f}, scale {scale:.12f}, "
            f"offset {-zero:.12f}"
        )
    return texts


def _origins(model: ModelProto) -> dict[str, str]:
    """Quantized and de-quantized tensor -> the name that the tensor itself has."""
    from pytest_qnnctx.build.quantize.expected import DEQUANTIZE, QUANTIZE

    graph = model.graph
    ends = {o.name for o in graph.output}
    origin: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == QUANTIZE:
            origin[node.output[0]] = origin.get(node.input[0], node.input[0])
        elif node.op_type == DEQUANTIZE:
            stored = node.input[0]
            origin[node.output[0]] = origin.get(stored, node.output[0])
    # A graph output's name is that of the DequantizeLinear that ends the graph.
    for node in graph.node:
        if node.op_type == DEQUANTIZE and node.output[0] in ends:
            inner = origin[node.output[0]]
            for name in [n for n, o in origin.items() if o == inner]:
                origin[name] = node.output[0]
            origin[inner] = node.output[0]
    return origin


def _with_fused(
    model: ModelProto, encodings: Mapping[str, ExpectedEncoding], origin: Mapping[str, str]
) -> dict[str, ExpectedEncoding]:
    """With what the compiler quantizes by itself.

    What an op gives to the Relu or Clip that is fused into it is quantized as the latter is; a bias
    has 32 bits and the scale of input times weight.
    """
    from pytest_qnnctx.build.onnx_graph import float_nodes, name_nodes
    from pytest_qnnctx.build.quantize.expected import ExpectedEncoding

    named = type(model)()
    named.CopyFrom(model)
    name_nodes(named)
    floating = float_nodes(named)
    found = dict(encodings)
    makers = {out: node for node in named.graph.node for out in node.output}
    for node in named.graph.node:
        maker = makers.get(node.input[0]) if node.input else None
        if node.op_type in ("Relu", "Clip") and maker and maker.name not in floating:
            made = origin.get(node.output[0], node.output[0])
            source = origin.get(node.input[0], node.input[0])
            if made in found and maker.op_type not in ("QuantizeLinear", "DequantizeLinear"):
                found.setdefault(source, found[made])
        if node.op_type in _WITH_BIAS and len(node.input) > 2 and node.name not in floating:
            data, weight, bias = (origin.get(n, n) for n in node.input[:3])
            if data in found and weight in found:
                scale = tuple(found[data].scale[0] * s for s in found[weight].scale)
                axis = None if len(scale) == 1 else 0
                found.setdefault(
                    bias, ExpectedEncoding(scale, (0,) * len(scale), 32, signed=True, axis=axis)
                )
    return found


def _shapes_and_types(model: ModelProto) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    import onnx

    with contextlib.suppress(Exception):
        model = onnx.shape_inference.infer_shapes(model)
    graph = model.graph
    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, int] = {}
    for info in (*graph.value_info, *graph.input, *graph.output):
        tensor = info.type.tensor_type
        shapes[info.name] = tuple(d.dim_value for d in tensor.shape.dim)
        types[info.name] = tensor.elem_type
    for constant in graph.initializer:
        shapes[constant.name] = tuple(constant.dims)
        types[constant.name] = constant.data_type
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in shapes:
            shapes.setdefault(node.output[0], shapes[node.input[0]])
    return shapes, types


def _at(values: Sequence[str], index: int) -> str:
    return values[index] if index < len(values) else ""
