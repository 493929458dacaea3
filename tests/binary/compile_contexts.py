"""Compile the context binaries that the tests of ``pytest_qnnctx.binary`` read.

``python compile_contexts.py DIRECTORY`` leaves in it, for each name in PLANS, ``NAME_ctx.onnx`` and
``NAME_ctx_qnn.bin``. Run in a process of its own: it loads the vendor's compiler.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

V68 = {"soc_model": "93", "htp_arch": "68"}
V73 = {"soc_model": "43", "htp_arch": "73"}
# offload_graph_io_quantization 0 keeps the graph's inputs and outputs in float.
PLANS = {
    "v68": ("one", V68),
    "v73": ("one", {**V73, "offload_graph_io_quantization": "0"}),
    "vtcm4": ("one", {**V68, "vtcm_mb": "4", "htp_graph_finalization_optimization_mode": "1"}),
    "two": ("two", V68),
}
SCALES = {"a": (0.05, 128), "b": (0.025, 100), "c": (0.1, 128), "y": (0.2, 7)}


class Net:
    """A quantized net under construction; ``quantize`` is the only way to make a tensor."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def quantize(self, tensor: str, result: str, scale: float, zero: int) -> str:
        s = self.weight(f"{result}_s", np.float32(scale).reshape(()))
        z = self.weight(f"{result}_z", np.array(zero, dtype=np.uint8))
        q = self.node("QuantizeLinear", [tensor, s, z], f"{result}_q")
        return self.node("DequantizeLinear", [q, s, z], result)

    def conv(self, tensor: str, result: str, channels: int, scale: float, zero: int) -> str:
        rng = np.random.default_rng(0)
        values = rng.integers(-100, 100, (channels, channels, 3, 3)).astype(np.int8)
        w = self.weight(f"{result}_w", values)
        s = self.weight(f"{result}_ws", np.float32(0.01).reshape(()))
        z = self.weight(f"{result}_wz", np.array(0, dtype=np.int8))
        w = self.node("DequantizeLinear", [w, s, z], f"{result}_wf")
        raw = self.node("Conv", [tensor, w], f"{result}_raw", pads=[1, 1, 1, 1])
        return self.quantize(raw, result, scale, zero)


def build(kind: str, path: Path) -> None:
    """``one``: a and b are added and convolved. ``two``: with an op between that the NPU lacks."""
    net = Net()
    a = net.quantize("a", "a_in", *SCALES["a"])
    b = net.quantize("b", "b_in", *SCALES["b"])
    total = net.quantize(net.node("Add", [a, b], "sum_raw"), "sum", *SCALES["c"])
    if kind == "two":
        total = net.conv(total, "mid", 4, *SCALES["c"])
        total = net.node("Hardmax", [total], "hard", axis=1)
        total = net.quantize(total, "hard_in", *SCALES["c"])
    net.conv(total, "y", 4, *SCALES["y"])
    shape = [1, 4, 8, 6]
    graph = helper.make_graph(
        net.nodes,
        kind,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("a", "b")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, path)


def compile_model(source: Path, target: Path, options: dict[str, str]) -> None:
    """Compile ``source``; what the NPU cannot run stays outside the context."""
    import onnxruntime
    import onnxruntime_qnn

    device = next(d for d in onnxruntime.get_ep_devices() if d.ep_name == "QNNExecutionProvider")
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_file_path", str(target))
    settings.add_session_config_entry("ep.context_embed_mode", "0")
    options = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "htp_graph_finalization_optimization_mode": "3",
        **options,
    }
    settings.add_provider_for_devices([device], options)
    onnxruntime.InferenceSession(str(source), sess_options=settings)


def main(directory: Path) -> None:
    """Compile every plan."""
    import onnxruntime
    import onnxruntime_qnn

    onnxruntime.register_execution_provider_library(
        "QNNExecutionProvider", onnxruntime_qnn.get_library_path()
    )
    for name, (kind, options) in PLANS.items():
        source = directory / f"{name}.onnx"
        build(kind, source)
        compile_model(source, directory / f"{name}_ctx.onnx", options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
