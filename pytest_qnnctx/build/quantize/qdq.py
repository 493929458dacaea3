"""Write encodings into an FP32 graph as pairs of QuantizeLinear and DequantizeLinear.

Weights are stored as integers behind a DequantizeLinear that carries the weight's name, biases as
int32 with scale = input scale * weight scale. Graph inputs and outputs stay float32. What was
measured with QNN 2.51 for v68 and shapes this file: 16-bit Q/DQ of the ``com.microsoft`` domain
compile at any opset (so the model needs no conversion to opset 21); a Relu whose output starts at
zero is fused without a pair before it, any other Relu or Clip needs one; an op whose inputs and
outputs differ in width is refused, so that a pair of pairs converts between widths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.build.quantize.coverage import Bias, Coverage
from pytest_qnnctx.build.quantize.encodings import Encoding
from pytest_qnnctx.build.quantize.expected import DEQUANTIZE, QUANTIZE
from pytest_qnnctx.build.quantize.fold import drop_unused_constants
from pytest_qnnctx.build.quantize.graph import FLOAT, Graph, view
from pytest_qnnctx.build.quantize.roles import FOLLOWS_INPUT, Role, role_of
from pytest_qnnctx.errors import ProductFailure

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from onnx import ModelProto, NodeProto, TensorProto

    Array = npt.NDArray[np.generic]

_CONTRIB = "com.microsoft"
_WIDE_OPSET = 21
_PER_AXIS_OPSET = 13
_INT4_IR_VERSION = 10
#: (bits, signed) -> TensorProto.DataType.
_ELEMENT = {
    (4, False): 21, (4, True): 22, (8, False): 2, (8, True): 3, (16, False): 4, (16, True): 5,
    (32, True): 6,
}  # fmt: skip


def insert_qdq(model: ModelProto, coverage: Coverage) -> None:
    """Quantize ``model`` in place as ``coverage`` assigns it.

    Raises ProductFailure where a tensor to be quantized is not float32.
    """
    graph = view(model)
    other = [n for n in coverage.assigned if graph.types.get(n, FLOAT) != FLOAT]
    if other:
        raise ProductFailure(
            f"tensor {other[0]!r} is a float type other than float32",
            next_step="export the ONNX in float32 (not half precision), with its encodings",
        )
    _Writer(model, graph, coverage).write()
    drop_unused_constants(model)


@dataclass
class _Insertion:
    """New nodes by their place: before everything, and after each old node (by index)."""

    first: list[NodeProto]
    after: dict[int, list[NodeProto]]
    before: dict[int, list[NodeProto]]


class _Writer:
    """One run of :func:`insert_qdq`."""

    def __init__(self, model: ModelProto, graph: Graph, coverage: Coverage) -> None:
        self._model = model
        self._graph = graph
        self._assigned = dict(coverage.assigned)
        self._coverage = coverage
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._replaced: set[str] = set()
        self._names = set(graph.tensors) | set(graph.outputs)
        self._new: list[TensorProto] = []
        self._places = _Insertion([], {}, {})
        self._ready: dict[str, str] = {}  # float tensor -> its de-quantized form
        self._renamed: dict[str, str] = {}  # graph output -> what its producer now makes
        self._converted: dict[tuple[str, int], str] = {}
        self._opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        self._domain = self._choose_domain()
        self._index = {node.outputs: i for i, node in enumerate(graph.nodes)}

    def _choose_domain(self) -> str:
        used = [e for name, e in self._assigned.items()]
        wide = any(e.bits not in (8, 32) for e in used)
        enough = _WIDE_OPSET if wide else _PER_AXIS_OPSET
        return "" if self._opset >= enough else _CONTRIB

    def write(self) -> None:
        skipped = self._redundant()
        for name in self._graph.inputs:
            if name in self._assigned:
                self._places.first += self._pair(name, name, self._assigned[name])
        for index, node in enumerate(self._graph.nodes):
            for name in node.outputs:
                if name in self._assigned and name not in skipped:
                    self._places.after.setdefault(index, []).extend(self._output(index, name))
        for name in self._assigned:
            if name in self._constants:
                self._constant(name)
        biases = {(bias.node, bias.name): bias for bias in self._coverage.derived}
        self._rewire(biases)
        self._assemble()

    def _redundant(self) -> set[str]:
        """Tensors before a Relu that the quantization behind it already implies."""
        skip = set()
        for name in self._coverage.fused:
            user = self._graph.only_consumer(name)
            encoding = self._assigned[name]
            if user is not None and user.op == "Relu" and encoding.zero_point == (0,):
                made = user.outputs[0]
                if made in self._assigned and made not in self._coverage.fused:
                    skip.add(name)
        return skip

    # --- activations ---

    def _pair(
        self, source: str, name: str, encoding: Encoding, *, output: str = ""
    ) -> list[NodeProto]:
        """Q and DQ of ``source``; the result is what consumers of ``name`` now read."""
        nodes, ready = self._raw_pair(source, name, encoding, output=output)
        self._ready[name] = ready
        return nodes

    def _raw_pair(
        self, source: str, name: str, encoding: Encoding, *, output: str = ""
    ) -> tuple[list[NodeProto], str]:
        from onnx import helper

        parameters = self._parameters(name, encoding)
        quantized = self._fresh(f"{name}_q")
        ready = output or self._fresh(f"{name}_dq")
        return [
            helper.make_node(
                QUANTIZE, [source, *parameters], [quantized], name=quantized, domain=self._domain
            ),
            helper.make_node(
                DEQUANTIZE, [quantized, *parameters], [ready], name=ready, domain=self._domain
            ),
        ], ready

    def _output(self, index: int, name: str) -> list[NodeProto]:
        """Pairs behind the node that makes ``name``, a conversion of width or range among them."""
        encoding = self._assigned[name]
        made_as = self._made_as(index, name, encoding)
        is_output = name in self._graph.outputs
        source = name
        if is_output:
            source = self._renamed[name] = self._fresh(f"{name}_float")
        nodes: list[NodeProto] = []
        if made_as != encoding:
            nodes, source = self._raw_pair(source, f"{name}_made", made_as)
        return nodes + self._pair(source, name, encoding, output=name if is_output else "")

    def _made_as(self, index: int, name: str, encoding: Encoding) -> Encoding:
        """The encoding in which the node itself makes ``name``.

        An op that rearranges its input can only give what it got; an op that computes in 16 bits
        makes 16 bits.
        """
        node = self._graph.nodes[index]
        if not node.domain and node.op in FOLLOWS_INPUT:
            source = self._assigned.get(node.inputs[0])
            return encoding if source is None else replace(source, name=encoding.name)
        return _widened(encoding) if self._width(index) > encoding.bits else encoding

    def _width(self, index: int) -> int:
        """The width in which a node computes: its widest activation's; 0 where it has none."""
        node = self._graph.nodes[index]
        names = [n for at, n in enumerate(node.inputs) if n and self._is_data(index, at)]
        if not node.domain and node.op in FOLLOWS_INPUT:
            names = names[:1]
        else:
            names += node.outputs
        return max((self._assigned[n].bits for n in names if n in self._assigned), default=0)

    def _is_data(self, index: int, position: int) -> bool:
        node = self._graph.nodes[index]
        if role_of(node, position, self._graph) is not Role.ACTIVATION:
            return False
        # HTP multiplies 16-bit activations by an 8-bit second factor.
        return not (node.op == "MatMul" and position == 1)

    # --- constants ---

    def _constant(self, name: str) -> None:
        encoding = self._assigned[name]
        values = self._values(name)
        self._ready[name] = self._stored_dq(name, values, encoding, keep_name=True)

    def _stored_dq(self, name: str, values: Array, encoding: Encoding, *, keep_name: bool) -> str:
        """Store ``values`` quantized; returns the name of the DequantizeLinear's output."""
        from onnx import helper

        parameters = self._parameters(name, encoding)
        stored = self._fresh(f"{name}_q")
        self._new.append(_tensor(stored, _quantize(values, encoding), encoding))
        ready = name if keep_name and not self._stays(name) else self._fresh(f"{name}_dq")
        if ready == name:
            self._replaced.add(name)
        attributes = {} if encoding.axis is None else {"axis": encoding.axis}
        self._places.first.append(
            helper.make_node(
                DEQUANTIZE,
                [stored, *parameters],
                [ready],
                name=f"{ready}_dequantize",
                domain=self._domain,
                **attributes,
            )
        )
        return ready

    def _stays(self, name: str) -> bool:
        """Whether the float constant is needed too: read as a plain number, or a graph output."""
        users = self._graph.consumers.get(name, ())
        roles = {role_of(node, at, self._graph) for node, at in users}
        return len(roles) > 1 or Role.FLOAT in roles or name in self._graph.outputs

    def _values(self, name: str) -> Array:
        from onnx import numpy_helper

        values: Array = numpy_helper.to_array(self._constants[name])
        return values

    def _bias(self, bias: Bias) -> str:
        import numpy as np

        values = self._values(bias.name)
        encoding = bias.encoding
        if encoding is None:
            weight = self._assigned[bias.weight]
            scale = np.array(weight.scale) * self._assigned[bias.input].scale[0]
            if scale.size > 1:
                # A grouped ConvTranspose has one scale a channel of each group.
                scale = np.tile(scale, max(values.shape[-1] // scale.size, 1))
            # A channel of (nearly) zero weights has a scale in which its bias would not fit.
            size: Any = np.abs(values.astype(np.float64))
            size = size.reshape(-1, size.shape[-1]).max(0) if size.ndim else size
            least = (size if scale.size > 1 else np.max(size)) / (2**31 - 1)
            scale = np.maximum(scale, least)
            encoding = Encoding(bias.name, "param", 32, signed=True)
        else:
            scale = np.array(encoding.scale)
        per_channel = scale.size > 1
        encoding = replace(
            encoding,
            scale=tuple(np.atleast_1d(scale).tolist()),
            zero_point=(0,) * scale.size,
            per_channel=per_channel,
            axis=max(values.ndim - 1, 0) if per_channel else None,
        )
        only_use = len(self._graph.consumers[bias.name]) == 1
        return self._stored_dq(bias.name, values, encoding, keep_name=only_use)

    # --- shared ---

    def _parameters(self, name: str, encoding: Encoding) -> list[str]:
        import numpy as np
        from onnx import numpy_helper

        scale = np.array(encoding.scale, np.float32)
        zero = np.array(encoding.zero_point, np.int64)
        if not encoding.per_channel:
            scale, zero = scale.reshape(()), zero.reshape(())
        names = [self._fresh(f"{name}_scale"), self._fresh(f"{name}_zero_point")]
        self._new.append(numpy_helper.from_array(scale, names[0]))
        self._new.append(_tensor(names[1], zero, encoding))
        return names

    def _fresh(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self._names:
            number += 1
            candidate = f"{name}_{number}"
        self._names.add(candidate)
        return candidate

    def _rewire(self, biases: Mapping[tuple[str, str], Bias]) -> None:
        """Make every consumer read the de-quantized tensor, in the width it computes in."""
        for index, (node, proto) in enumerate(
            zip(self._graph.nodes, self._model.graph.node, strict=True)
        ):
            width = self._width(index)
            for position, name in enumerate(node.inputs):
                if not name:
                    continue
                role = role_of(node, position, self._graph)
                bias = biases.get((node.label, name)) if role is Role.BIAS else None
                if bias is not None:
                    proto.input[position] = self._bias(bias)
                elif role is not Role.FLOAT and name in self._ready:
                    proto.input[position] = self._ready[name]
                    encoding = self._assigned[name]
                    if self._is_data(index, position) and encoding.bits < width:
                        proto.input[position] = self._converted_input(index, name, encoding)
            for position, name in enumerate(node.outputs):
                if name in self._renamed:
                    proto.output[position] = self._renamed[name]

    def _converted_input(self, index: int, name: str, encoding: Encoding) -> str:
        """``name`` in 16 bits, exactly: each 8-bit step is 256 of the new ones."""
        key = (name, 16)
        if key not in self._converted:
            nodes, ready = self._raw_pair(self._ready[name], f"{name}_as16", _widened(encoding))
            self._places.before.setdefault(index, []).extend(nodes)
            self._converted[key] = ready
        return self._converted[key]

    def _assemble(self) -> None:
        graph = self._model.graph
        nodes: list[Any] = list(self._places.first)
        for index, node in enumerate(graph.node):
            nodes += self._places.before.get(index, [])
            nodes.append(node)
            nodes += self._places.after.get(index, [])
        kept: Iterable[Any] = [t for t in graph.initializer if t.name not in self._replaced]
        tensors = [*kept, *self._new]
        del graph.node[:]
        del graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(tensors)
        del graph.value_info[:]
        opsets = self._model.opset_import
        if self._domain and not any(o.domain == self._domain for o in opsets):
            opsets.add(domain=self._domain, version=1)
        if any(t.data_type in (_ELEMENT[4, True], _ELEMENT[4, False]) for t in self._new):
            self._model.ir_version = max(self._model.ir_version, _INT4_IR_VERSION)


def _widened(encoding: Encoding) -> Encoding:
    """The 16-bit encoding that holds each value of an 8-bit one exactly."""
    if encoding.bits != 8:
        return encoding
    return replace(
        encoding,
        bits=16,
        scale=tuple(value / 256 for value in encoding.scale),
        zero_point=tuple(value * 256 for value in encoding.zero_point),
    )


def _quantize(values: Array, encoding: Encoding) -> Array:
    """Integers as QuantizeLinear makes them: divide in float32, round half to even, saturate."""
    import numpy as np

    shape = [1] * values.ndim
    if encoding.axis is not None:
        shape[encoding.axis] = -1
    # The int32 grid is finer than float32: there the division is done in double.
    kind: Any = np.float64 if encoding.bits == 32 else np.float32
    scale = np.array(encoding.scale, np.float32).astype(kind)
    zero = np.array(encoding.zero_point, np.int64)
    if encoding.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    else:
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    low, high = (0, 2**encoding.bits - 1)
    if encoding.signed:
        low, high = -(2 ** (encoding.bits - 1)), 2 ** (encoding.bits - 1) - 1
    steps = np.rint(values.astype(kind) / scale)
    integers: Array = np.clip(steps + zero, low, high).astype(np.int64)
    return integers


def _tensor(name: str, values: Array, encoding: Encoding) -> TensorProto:
    """An integer tensor of the encoding's type."""
    from onnx import helper, numpy_helper

    element = _ELEMENT[encoding.bits, encoding.signed]
    if encoding.bits == 4:
        return helper.make_tensor(name, element, values.shape, values.flatten().tolist())
    return numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(element)), name)
