"""Whether a model's encodings and its ONNX graph belong together, decided before any tool runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pytest_qnnctx.build.quantize.encoding_sources import EncodingSources, closest
from pytest_qnnctx.build.quantize.encodings import Encoding, EncodingsFile
from pytest_qnnctx.build.quantize.graph import Graph, Node
from pytest_qnnctx.build.quantize.roles import NORMALIZATIONS, Role, channel_axis, role_of
from pytest_qnnctx.errors import Finding, ProductFailure
from pytest_qnnctx.model import Target

_REEXPORT = "export the ONNX and its encodings again, together, from AIMET; edit neither by hand"
_WIDE_WEIGHTS_FROM = 73
#: Comparing spellings is slow, and where hundreds of names differ the first ones tell the story.
_MOST_HINTS = 50


@dataclass(frozen=True)
class Bias:
    """A bias that becomes int32: where it is used, and what its scale is made of."""

    node: str
    name: str
    input: str
    weight: str
    encoding: Encoding | None = None


@dataclass(frozen=True)
class Coverage:
    """What the encodings cover.

    ``total`` counts the file's entries, ``matched`` names those that belong to a tensor.
    ``assigned`` maps every tensor that is quantized to its encoding in the form that the graph
    needs (axis known, activations unsigned); it holds ``matched``, ``inherited`` (from a reshape's
    other side) and ``fused`` (a tensor between an op and the Relu or Clip that the compiler fuses
    into it). ``derived`` are biases. ``uncovered`` tensors would be computed in float.
    """

    version: str
    total: int
    matched: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    derived: tuple[Bias, ...] = ()
    uncovered: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    weights: frozenset[str] = frozenset()
    assigned: Mapping[str, Encoding] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def check_coverage(
    graph: Graph, encodings: EncodingsFile, target: Target, *, gone: Collection[str] = ()
) -> Coverage:
    """Match ``encodings`` to ``graph`` and say what is wrong; never raises.

    ``gone`` names tensors of the original graph that were folded away: their entries are matched,
    but have nothing to apply to. Findings: ``encoding_unmatched``, ``tensor_uncovered`` (on a
    target without float), ``encoding_channels``, ``encoding_bitwidth``, ``encoding_unsupported``,
    ``float_encoding`` (on a target without float).
    """
    return _Matcher(graph, encodings, target, frozenset(gone)).run()


def require_coverage(coverage: Coverage, name: str, path: object, target: Target) -> None:
    """Raise ProductFailure with every finding, where there are any."""
    if not coverage.findings:
        return
    count = len(coverage.findings)
    raise ProductFailure(
        f"model {name!r} and its encodings {path} do not fit together for {target}: "
        f"{count} {'finding' if count == 1 else 'findings'}",
        next_step=next((f.next_step for f in coverage.findings if f.next_step), _REEXPORT),
        findings=coverage.findings,
    )


class _Matcher:
    """One run of :func:`check_coverage`."""

    def __init__(
        self, graph: Graph, file: EncodingsFile, target: Target, gone: frozenset[str]
    ) -> None:
        self.graph = graph
        self.file = file
        self.target = target
        self.known = frozenset(graph.tensors)
        self.gone = gone
        self.findings: list[Finding] = []
        self.no_float = target.has_float is not True

    def run(self) -> Coverage:
        entries = self.file.entries
        matched = tuple(n for n in entries if n in self.known or n in self.gone)
        unmatched = tuple(n for n in entries if n not in self.known and n not in self.gone)
        needed, weights, biases = self._needed()
        self._report_unmatched(unmatched, needed)
        assigned: dict[str, Encoding] = {}
        inherited, fused, uncovered = [], [], []
        sources = EncodingSources(self.graph, entries)
        for tensor in needed:
            found = sources.find(tensor)
            if found is None or entries[found.source].is_float:
                uncovered.append(tensor)
                continue
            encoding = entries[found.source]
            if found.how == "inherited":
                inherited.append(tensor)
            elif found.how == "fused":
                fused.append(tensor)
            assigned[tensor] = self._fit(tensor, encoding, weights.get(tensor), found.how == "own")
        self._report_widths(weights, assigned)
        self._report_uncovered(uncovered, sources)
        return Coverage(
            version=self.file.version,
            total=len(entries),
            matched=matched,
            inherited=tuple(inherited),
            fused=tuple(fused),
            derived=tuple(self._derived(biases, assigned)),
            uncovered=tuple(uncovered),
            unmatched=unmatched,
            weights=frozenset(weights),
            assigned=assigned,
            findings=tuple(self.findings),
        )

    # --- what needs an encoding ---

    def _needed(self) -> tuple[list[str], dict[str, tuple[Node, int]], list[tuple[Node, str]]]:
        """Tensors that must be quantized, in graph order; the weights' uses; the biases."""
        graph = self.graph
        needed: dict[str, None] = {}
        weights: dict[str, tuple[Node, int]] = {}
        biases: list[tuple[Node, str]] = []
        for name in graph.inputs:
            if graph.is_float(name) and name in graph.consumers:
                needed[name] = None
        for node in graph.nodes:
            for position, name in enumerate(node.inputs):
                if not name or not graph.is_float(name):
                    continue
                role = role_of(node, position, graph)
                if role is Role.BIAS:
                    biases.append((node, name))
                elif role is not Role.FLOAT:
                    needed[name] = None
                    if role is Role.WEIGHT:
                        weights.setdefault(name, (node, position))
            for name in node.outputs:
                used = name in graph.consumers or name in graph.outputs
                if name and used and graph.is_float(name):
                    needed[name] = None
        numbers = {
            name
            for name in needed
            if (users := graph.consumers.get(name))
            and name not in graph.outputs
            and all(role_of(node, at, graph) is Role.FLOAT for node, at in users)
        }
        return [name for name in needed if name not in numbers], weights, biases

    def _derived(
        self, biases: list[tuple[Node, str]], assigned: Mapping[str, Encoding]
    ) -> Iterator[Bias]:
        for node, name in biases:
            source, weight = node.inputs[0], node.inputs[1]
            if source in assigned and weight in assigned:
                own = self.file.entries.get(name)
                if own is not None and (own.is_float or own.bits != 32):
                    own = None
                if own is not None and len(own.scale) not in (1, self.graph.constants[name][-1]):
                    self._channels(name, own, self.graph.constants[name][-1], "values")
                    own = None
                yield Bias(node.label, name, source, weight, own)

    # --- one tensor ---

    def _fit(
        self, tensor: str, encoding: Encoding, use: tuple[Node, int] | None, own: bool
    ) -> Encoding:
        """The encoding as the graph needs it; adds findings where it cannot be."""
        if encoding.blockwise:
            self._find(
                "encoding_unsupported",
                tensor,
                f"the encoding of {tensor!r} is blockwise, which a QDQ ONNX for HTP "
                f"{self.target.htp_arch} cannot express",
                "use per-channel encodings for this tensor",
            )
        if use is None:
            return self._fit_activation(tensor, encoding, own)
        node, position = use
        dims = self.graph.constants[tensor]
        axis = channel_axis(node, position, len(dims))
        half = 2 ** (encoding.bits - 1)
        if node.op in NORMALIZATIONS and not encoding.per_channel:
            return self._fit_activation(tensor, encoding, own)
        if not encoding.signed and set(encoding.zero_point) == {half}:
            # The same grid, in the form that HTP wants for weights.
            zero = (0,) * len(encoding.zero_point)
            encoding = replace(encoding, signed=True, zero_point=zero)
        if not encoding.per_channel:
            return replace(encoding, axis=None)
        stated = encoding.axis
        if stated is not None and stated < 0:
            stated += len(dims)
        if axis is None or (stated is not None and stated != axis):
            self._find(
                "encoding_channels",
                tensor,
                f"the encoding of {tensor!r} has a scale for each channel of axis {encoding.axis}; "
                f"a {node.op} weight's channels are on axis {axis}",
                _REEXPORT,
            )
        elif len(encoding.scale) != dims[axis]:
            self._channels(tensor, encoding, dims[axis], "channels")
        if any(encoding.zero_point):
            self._find(
                "encoding_unsupported",
                tensor,
                f"the encoding of {tensor!r} is per channel and asymmetric; HTP takes per-channel "
                "weights symmetric only",
                "quantize parameters symmetrically in AIMET, and export again",
            )
        return replace(encoding, axis=axis)

    def _fit_activation(self, tensor: str, encoding: Encoding, own: bool) -> Encoding:
        if len(encoding.scale) != 1:
            if own:
                self._channels(tensor, encoding, 1, "scale for an activation")
            encoding = replace(
                encoding, scale=encoding.scale[:1], zero_point=encoding.zero_point[:1]
            )
        if encoding.signed and encoding.bits < 32:
            # The same grid, unsigned: what HTP's ops take for activations.
            zero = encoding.zero_point[0] + 2 ** (encoding.bits - 1)
            encoding = replace(encoding, signed=False, zero_point=(zero,))
        return replace(encoding, axis=None, per_channel=False)

    # --- findings ---

    def _find(self, kind: str, subject: str, message: str, next_step: str) -> None:
        if not any(f.kind == kind and f.subject == subject for f in self.findings):
            self.findings.append(Finding(kind, subject, message, next_step))

    def _channels(self, tensor: str, encoding: Encoding, wanted: int, what: str) -> None:
        self._find(
            "encoding_channels",
            tensor,
            f"the encoding of {tensor!r} has {len(encoding.scale)} scales; "
            f"the tensor has {wanted} {what}",
            _REEXPORT,
        )

    def _report_unmatched(self, unmatched: tuple[str, ...], needed: list[str]) -> None:
        without = [name for name in needed if name not in self.file.entries]
        for index, name in enumerate(unmatched):
            close = ""
            if index < _MOST_HINTS:
                close = closest(name, without) or closest(name, self.known)
            hint = f"; the closest tensor is {close!r}" if close else ""
            self._find(
                "encoding_unmatched",
                name,
                f"the encoding {name!r} matches no tensor of the ONNX{hint}",
                _REEXPORT,
            )

    def _report_widths(
        self, weights: Mapping[str, tuple[Node, int]], assigned: Mapping[str, Encoding]
    ) -> None:
        wide = _arch_number(self.target.htp_arch) >= _WIDE_WEIGHTS_FROM
        for tensor, encoding in assigned.items():
            if tensor not in weights:
                problem = "" if encoding.bits in (8, 16) else "activations are 8 or 16 bits"
            elif encoding.bits == 16:
                node, position = weights[tensor]
                other = assigned.get(node.inputs[1 - position])
                if not wide:
                    problem = f"weights on HTP {self.target.htp_arch} are 4 or 8 bits"
                else:
                    narrow = other is not None and other.bits < 16
                    problem = "weights of 16 bits need activations of 16 bits" if narrow else ""
            elif encoding.bits == 4 and not encoding.per_channel:
                problem = "weights of 4 bits are per channel"
            else:
                problem = "" if encoding.bits in (4, 8) else "weights are 4, 8 or 16 bits"
            if problem:
                self._find(
                    "encoding_bitwidth",
                    tensor,
                    f"the encoding of {tensor!r} has {encoding.bits} bits; {problem}",
                    "choose a width that the target has, in AIMET, and export again",
                )

    def _report_uncovered(self, uncovered: list[str], sources: EncodingSources) -> None:
        if not self.no_float:
            return
        missing = frozenset(uncovered)
        for tensor in uncovered:
            found = sources.find(tensor)
            if found is not None:
                self._find(
                    "float_encoding",
                    found.source,
                    f"the encoding of {found.source!r} asks for "
                    f"{self.file.entries[found.source].dtype}; {self._why_not()}",
                    "give this tensor an integer encoding in AIMET, and export again",
                )
                continue
            if sources.cause(tensor) in missing:
                continue  # one missing encoding, one finding
            self._find(
                "tensor_uncovered",
                tensor,
                f"tensor {tensor!r} ({self._where(tensor)}) has no encoding and would be computed "
                f"in float; {self._why_not()}",
                "enable its quantizer in AIMET (or fold the op away), and export again",
            )

    def _why_not(self) -> str:
        if self.target.has_float is False:
            return f"{self.target} has no float"
        return f"whether {self.target} has float is unknown"

    def _where(self, tensor: str) -> str:
        if tensor in self.graph.producers:
            node = self.graph.producers[tensor]
            return f"made by {node.op} {node.label!r}"
        users = self.graph.consumers.get(tensor)
        kind = "constant" if tensor in self.graph.constants else "graph input"
        return f"{kind} of {users[0][0].op} {users[0][0].label!r}" if users else kind


def _arch_number(arch: str) -> int:
    match = re.search(r"\d+", arch)
    return int(match[0]) if match else 0
