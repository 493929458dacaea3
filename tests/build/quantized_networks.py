"""Networks made in code, with encodings as AIMET derives them: from the values that flow."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Ops whose outputs AIMET leaves without an encoding.
_NOT_QUANTIZED = {
    "Flatten", "Gather", "Reshape", "Squeeze", "Unsqueeze", "Split", "Tile", "Transpose",
    "Identity", "MaxPool", "Slice", "Pad", "DepthToSpace",
}  # fmt: skip
_FUSES_WITH_RELU = {"Conv", "ConvTranspose", "Add", "Gemm", "BatchNormalization"}
_WEIGHT_AXIS = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}


@dataclass
class Network:
    """Collects nodes and weights; ``save`` writes the ONNX."""

    seed: int = 0
    opset: int = 17

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int, scale: float = 0.2) -> str:
        values = self.random.standard_normal(shape) * scale
        return self.constant(name, values.astype(np.float32))

    def constant(self, name: str, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"n_{output}", **attributes))
        return output

    def model(self, inputs: dict[str, tuple], outputs: dict[str, tuple]) -> onnx.ModelProto:
        def infos(tensors: dict[str, tuple]) -> list[onnx.ValueInfoProto]:
            return [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in tensors.items()
            ]

        graph = helper.make_graph(self.nodes, "g", infos(inputs), infos(outputs), self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model)
        return model


def wide_network() -> onnx.ModelProto:
    """Residual add, depthwise and transposed convolution, Clip, BatchNormalization, MatMul + Add,
    Concat, Softmax, a constant factor, shape ops, two outputs."""
    net = Network()
    net.add("Conv", ["x", net.weight("w1", 8, 8, 3, 3), net.weight("b1", 8)], "c1", pads=[1] * 4)
    net.add("Relu", ["c1"], "r1")
    net.add(
        "Conv",
        ["r1", net.weight("wd", 8, 1, 3, 3), net.weight("bd", 8)],
        "d1",
        pads=[1] * 4,
        group=8,
    )
    net.constant("six_low", np.float32(0))
    net.constant("six", np.float32(6))
    net.add("Clip", ["d1", "six_low", "six"], "d6")
    net.add("Conv", ["d6", net.weight("w2", 8, 8, 1, 1), net.weight("b2", 8)], "c2")
    net.add("Add", ["c2", "r1"], "sum")
    net.add("Relu", ["sum"], "res")
    net.add(
        "ConvTranspose",
        ["res", net.weight("wt", 8, 4, 2, 2), net.weight("bt", 4)],
        "up",
        strides=[2, 2],
    )
    net.add("MaxPool", ["up"], "mp", kernel_shape=[2, 2], strides=[2, 2])
    net.add("Concat", ["res", "mp"], "cat", axis=1)
    net.add("Conv", ["cat", net.weight("w3", 8, 12, 1, 1)], "c3")
    net.constant("gamma", np.array([1, 0.5, -1, 2, 1, 0.1, 1, 1], np.float32))
    net.weight("beta", 8)
    net.weight("mean", 8)
    net.constant("var", np.linspace(0.5, 2, 8).astype(np.float32))
    net.add("BatchNormalization", ["c3", "gamma", "beta", "mean", "var"], "bn")
    net.add("Relu", ["bn"], "rb")
    net.add("GlobalAveragePool", ["rb"], "gap")
    net.add("Flatten", ["gap"], "flat")
    net.add("Gemm", ["flat", net.weight("wg", 5, 8), net.weight("bg", 5)], "gemm", transB=1)
    net.add("Mul", ["gemm", net.constant("factor", np.float32([[0.5, 1, 1.5, 2, 3]]))], "y")
    net.constant("to_rows", np.array([1, 8, 256]))
    net.add("Reshape", ["rb", "to_rows"], "rows")
    net.add("Transpose", ["rows"], "columns", perm=[0, 2, 1])
    net.add("MatMul", ["columns", net.weight("wm", 8, 6)], "product")
    net.add("Add", [net.weight("bm", 6), "product"], "linear")
    net.add("Softmax", ["linear"], "soft", axis=-1)
    return net.model({"x": (1, 8, 16, 16)}, {"y": (1, 5), "soft": (1, 256, 6)})


def run_all(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every float tensor of the model for one input."""
    import onnxruntime as ort

    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    known = {info.name for info in wide.graph.output}
    for node in wide.graph.node:
        wide.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in node.output if name not in known
        )
    session = ort.InferenceSession(wide.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = dict(zip(names, session.run(None, feeds), strict=True))
    return {**feeds, **values}


def samples_for(model: onnx.ModelProto, count: int = 4, seed: int = 1) -> list[dict]:
    random = np.random.default_rng(seed)
    shapes = {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in model.graph.input
    }
    return [
        {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def derive_encodings(
    model: onnx.ModelProto,
    *,
    activation_bits: int = 16,
    param_bits: int = 8,
    bits_of: dict[str, int] | None = None,
) -> dict:
    """AIMET's encodings, version 1.0.0, of ``model`` for a few random inputs."""
    bits_of = bits_of or {}
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    for sample in samples_for(model):
        for name, values in run_all(model, sample).items():
            if values.dtype == np.float32:
                low[name] = min(low.get(name, 0.0), float(values.min()))
                high[name] = max(high.get(name, 0.0), float(values.max()))
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    activations, params = [], []
    for name in [*(i.name for i in model.graph.input), *_activations(model)]:
        if name in constants:
            low[name], high[name] = min(constants[name].min(), 0), max(constants[name].max(), 0)
        bits = bits_of.get(name, activation_bits)
        scale = max(float(high[name]) - float(low[name]), 1e-6) / (2**bits - 1)
        activations.append(
            {
                "name": name,
                "bw": bits,
                "dtype": "INT",
                "enc_type": "PER_TENSOR",
                "is_sym": False,
                "scale": [scale],
                "offset": [float(round(float(low[name]) / scale))],
            }
        )
    graph = model.graph
    for node in graph.node:
        axis = _WEIGHT_AXIS.get(node.op_type)
        if node.op_type == "Gemm":
            axis = 0 if any(a.name == "transB" and a.i for a in node.attribute) else 1
        if node.op_type == "BatchNormalization" and _stands_alone(node, graph):
            params.append(_gamma_encoding(node.input[1], constants[node.input[1]]))
        if axis is None or node.input[1] not in constants:
            continue
        values = np.moveaxis(constants[node.input[1]], axis, 0)
        bits = bits_of.get(node.input[1], param_bits)
        largest = np.abs(values.reshape(len(values), -1)).max(1)
        scale = np.maximum(largest / (2 ** (bits - 1) - 1), 1e-9)
        params.append(
            {
                "name": node.input[1],
                "bw": bits,
                "dtype": "INT",
                "enc_type": "PER_CHANNEL",
                "is_sym": True,
                "scale": scale.tolist(),
                "offset": [-(2.0 ** (bits - 1))] * len(scale),
            }
        )
    return {"version": "1.0.0", "activation_encodings": activations, "param_encodings": params}


def _activations(model: onnx.ModelProto) -> list[str]:
    """Tensors that AIMET quantizes: not what the compiler fuses, not what merely moves data."""
    graph = model.graph
    uses = Counter(name for node in graph.node for name in node.input)
    reader = {name: node for node in graph.node for name in node.input}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {info.name for info in graph.output}
    names = []
    for node in graph.node:
        if node.op_type in ("Mul", "Div", "Sub", "Pow", "PRelu") or (
            node.op_type == "Add" and not _is_bias_add(node, graph)
        ):
            names += [name for name in node.input if name in constants]
        if node.op_type in _NOT_QUANTIZED:
            continue
        for name in node.output:
            follower = reader[name].op_type if uses[name] == 1 and name not in outputs else ""
            fused = (
                (follower in ("Relu", "Clip") and node.op_type in _FUSES_WITH_RELU)
                or (follower == "BatchNormalization" and node.op_type == "Conv")
                or (node.op_type == "MatMul" and follower == "Add")
            )
            if not fused:
                names.append(name)
    return list(dict.fromkeys(names))


def _stands_alone(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    made = {name: maker.op_type for maker in graph.node for name in maker.output}
    return made.get(node.input[0]) != "Conv"


def _gamma_encoding(name: str, values: np.ndarray) -> dict:
    return {
        "name": name,
        "bw": 8,
        "dtype": "INT",
        "enc_type": "PER_TENSOR",
        "is_sym": True,
        "scale": [float(np.abs(values).max()) / 127],
        "offset": [-128.0],
    }


def _is_bias_add(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    made = {name: maker.op_type for maker in graph.node for name in maker.output}
    return any(made.get(name) == "MatMul" for name in node.input)


def write_pair(directory: Path, model: onnx.ModelProto, encodings: dict) -> tuple[Path, Path]:
    """The ONNX and its encodings as files."""
    onnx_file, encodings_file = directory / "net.onnx", directory / "net.encodings"
    onnx.save(model, str(onnx_file))
    encodings_file.write_text(json.dumps(encodings))
    return onnx_file, encodings_file
