"""What ``qairt-dlc-info -i`` says is in a DLC: its graphs' names, ops, tensors and encodings.

A table with a row an op; a row whose Id cell is empty continues the one above. The form was put
together from public dumps of 2.22 to 2.4x; what is not understood is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_qnnctx.build.compiled_graph import CompiledGraph, CompiledNode, CompiledTensor

if TYPE_CHECKING:
    from pytest_qnnctx.build.quantize.expected import ExpectedEncoding

_GRAPH = re.compile(r"^\s*Info of graph:\s*(\S+)")
_TENSOR = re.compile(
    r"(\S+) \(data type: (\w+); tensor dimension: \[[^\]]*\]; tensor type: (\w+)\)", re.ASCII
)
_NUMBER = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)"
_ENCODING = re.compile(
    rf"(\S+) encoding(?: for channel_(\d+))?\s*: bitwidth (\d+), min {_NUMBER}, max {_NUMBER}, "
    rf"scale {_NUMBER}, offset {_NUMBER}",
    re.ASCII,
)
_CHANNELS = re.compile(r"axis-quant: axis: \d+, num_elements: (\d+)", re.ASCII)

_CLASSES = {"float": 0x0200, "ufxp": 0x0400, "sfxp": 0x0300, "int": 0, "uint": 0x0100, "bool": 0x05}
_WIDTHS = {"4": 0x04, "8": 0x08, "16": 0x16, "32": 0x32, "64": 0x64}
_ROLES = {"APP_WRITE": 0, "APP_READ": 1, "NATIVE": 3, "STATIC": 4}
_UNSIGNED, _SIGNED = 0x0400, 0x0300
_INPUTS_CELL, _OUTPUTS_CELL = 3, 4
#: Numbers are printed with 12 decimals; twice that is allowed for.
_PRINTED = 2e-12


@dataclass(frozen=True)
class DlcGraph:
    """One graph of a DLC. A tensor's ``dtype`` is QNN's number (0 where the name is unknown)."""

    name: str
    graph: CompiledGraph


@dataclass
class _Reading:
    """A graph while its lines are read."""

    name: str
    nodes: list[CompiledNode] = field(default_factory=list)
    types: dict[str, tuple[int, int]] = field(default_factory=dict)
    scales: dict[str, tuple[float, int]] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    last_channel: str = ""

    def line(self, line: str) -> None:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.lstrip().startswith("|") and len(cells) > _OUTPUTS_CELL:
            self._row(cells)
        for name, kind, role in _TENSOR.findall(line):
            self.types.setdefault(name, (_dtype(kind), _ROLES.get(role, 3)))
        for found in _ENCODING.finditer(line):
            self._encoding(found)
        if self.last_channel and (count := _CHANNELS.search(line)):
            self.channels[self.last_channel] = int(count[1])

    def _row(self, cells: list[str]) -> None:
        inputs = tuple(m[0] for m in _TENSOR.findall(cells[_INPUTS_CELL]))
        outputs = tuple(m[0] for m in _TENSOR.findall(cells[_OUTPUTS_CELL]))
        if cells[0].isdigit():
            self.nodes.append(CompiledNode(cells[1], cells[2], inputs, outputs))
        elif not cells[0] and self.nodes:
            node = self.nodes[-1]
            self.nodes[-1] = replace(
                node, inputs=(*node.inputs, *inputs), outputs=(*node.outputs, *outputs)
            )

    def _encoding(self, found: re.Match[str]) -> None:
        name, channel = found[1], found[2]
        try:
            bits, low, high = int(found[3]), float(found[4]), float(found[5])
            scale, offset = float(found[6]), round(float(found[7]))
        except (ValueError, OverflowError):
            return
        if channel is not None:
            self.last_channel = name
            self.channels[name] = max(self.channels.get(name, 0), int(channel) + 1)
        else:
            self.last_channel = ""
            self.scales[name] = (_scale(bits, low, high, scale), offset)

    def done(self) -> DlcGraph:
        tensors = {}
        for name, (dtype, role) in self.types.items():
            tensor = CompiledTensor(name, dtype, role)
            if name in self.channels:
                tensor = replace(tensor, channels=self.channels[name])
            elif name in self.scales:
                scale, offset = self.scales[name]
                tensor = replace(tensor, scale=scale, offset=offset)
            tensors[name] = tensor
        return DlcGraph(self.name, CompiledGraph(tuple(self.nodes), tensors))


def parse_dlc_info(text: str) -> tuple[DlcGraph, ...]:
    """Every graph with at least one op that ``text`` tells of; empty where nothing is understood.

    Of a tensor that is quantized per channel the number of channels alone is known: the tool prints
    the first channel's values.
    """
    graphs: list[_Reading] = []
    for line in text.splitlines():
        if found := _GRAPH.match(line):
            graphs.append(_Reading(found[1]))
        elif graphs:
            graphs[-1].line(line)
    return tuple(graph.done() for graph in graphs if graph.nodes)


def like_expected(
    graphs: Iterable[CompiledGraph], expected: Mapping[str, ExpectedEncoding]
) -> tuple[CompiledGraph, ...]:
    """``graphs`` with the signedness that is ``expected``.

    A DLC holds a symmetric signed activation as an unsigned one whose offset is shifted by half the
    range: the same real values, written otherwise.
    """
    found = []
    for graph in graphs:
        tensors = dict(graph.tensors)
        for name, wanted in expected.items():
            tensor = tensors.get(name)
            if tensor is None or tensor.offset is None:
                continue
            half = 1 << (wanted.bits - 1)
            if wanted.signed and tensor.dtype & 0xFF00 == _UNSIGNED:
                dtype, offset = tensor.dtype - _UNSIGNED + _SIGNED, tensor.offset + half
            elif not wanted.signed and tensor.dtype & 0xFF00 == _SIGNED:
                dtype, offset = tensor.dtype - _SIGNED + _UNSIGNED, tensor.offset - half
            else:
                continue
            tensors[name] = replace(tensor, dtype=dtype, offset=offset)
        found.append(replace(graph, tensors=tensors))
    return tuple(found)


def _dtype(kind: str) -> int:
    name, _, width = kind.lower().partition("_")
    base, bits = _CLASSES.get(name), _WIDTHS.get(width)
    if base is None or bits is None:
        return 0
    return 0x0508 if name == "bool" else base | bits


def _scale(bits: int, low: float, high: float, printed: float) -> float:
    """The scale, from the range where that agrees: a tiny one loses its digits in print."""
    steps = (1 << bits) - 1 if 0 < bits <= 32 else 0
    if not steps:
        return printed
    derived = (high - low) / steps
    return derived if abs(derived - printed) <= _PRINTED + 1e-5 * abs(printed) else printed
