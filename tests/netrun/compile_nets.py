"""Compile the nets that the tests of netrun run, with what ONNX Runtime's CPU makes of them.

``python compile_nets.py DIRECTORY`` leaves in it for each net ``NAME.onnx``, ``NAME.bin``,
``NAME.json`` (its graph, as ``netrun --io`` reads it) and ``NAME.npz`` (inputs, and outputs of the
CPU). ``parted.bin`` holds two graphs, and ``shared.bin`` two with shared weights: loading that one
crashes Qualcomm's emulator.
Run in a process of its own: it loads the vendor's compiler.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_qnn as qnn
from onnx import TensorProto, helper, numpy_helper

PROVIDER = "QNNExecutionProvider"
V68 = {"soc_model": "93", "htp_arch": "68"}
V73 = {"soc_model": "43", "htp_arch": "73"}
WIDTHS = {8: (TensorProto.UINT8, np.uint8, 255), 16: (TensorProto.UINT16, np.uint16, 65535)}
SHAPE, OUT_SHAPE = [1, 3, 8, 8], [1, 4, 8, 8]


class Quantizer:
    """Scales and zero points of one width: inputs span -1..1, results -3..5."""

    def __init__(self, bits: int) -> None:
        self.onnx, self.numpy, steps = WIDTHS[bits]
        self.scales = {"in": np.float32(2 / steps), "mid": np.float32(4 / steps)}
        self.scales["out"] = np.float32(8 / steps)
        self.zeros = {"in": (steps + 1) // 2, "mid": (steps + 1) // 2, "out": steps * 3 // 8}
        self.constants = [
            numpy_helper.from_array(value, f"{name}_{part}")
            for name in self.scales
            for part, value in (
                ("scale", np.array(self.scales[name])),
                ("zero", np.array(self.zeros[name], self.numpy)),
            )
        ]

    def to_real(self, tensor: str, result: str, kind: str) -> onnx.NodeProto:
        return helper.make_node(
            "DequantizeLinear", [tensor, f"{kind}_scale", f"{kind}_zero"], [result]
        )

    def to_code(self, tensor: str, result: str, kind: str) -> onnx.NodeProto:
        return helper.make_node(
            "QuantizeLinear", [tensor, f"{kind}_scale", f"{kind}_zero"], [result]
        )

    def describe(self, name: str, kind: str, shape: list[int]) -> dict:
        bits = "8" if self.numpy is np.uint8 else "16"
        scale, offset = float(self.scales[kind]), -self.zeros[kind]
        return tensor(name, f"ufixed{bits}", shape, scale, offset)


def tensor(name, dtype, shape, scale=None, offset=None) -> dict:
    return {"name": name, "dtype": dtype, "shape": shape, "scale": scale, "offset": offset}


def weights() -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    values = np.random.default_rng(1).integers(-127, 127, (4, 3, 3, 3)).astype(np.int8)
    constants = [
        numpy_helper.from_array(values, "w_q"),
        numpy_helper.from_array(np.array(0.003, np.float32), "w_scale"),
        numpy_helper.from_array(np.array(0, np.int8), "w_zero"),
    ]
    return [helper.make_node("DequantizeLinear", ["w_q", "w_scale", "w_zero"], ["w"])], constants


def conv(source: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, "w"], ["y"], name="conv", pads=[1, 1, 1, 1])


def model(name, nodes, inputs, outputs, constants) -> onnx.ModelProto:
    infos = [
        [helper.make_tensor_value_info(*each) for each in tensors] for tensors in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, name, *infos, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def typed_net(bits: int, name: str):
    """One input and output of 8 or 16 bits, quantized."""
    q = Quantizer(bits)
    dequantized, constants = weights()
    nodes = [*dequantized, q.to_real("image", "x", "in"), conv("x"), q.to_code("y", "out", "out")]
    net = model(
        name, nodes, [("image", q.onnx, SHAPE)], [("out", q.onnx, OUT_SHAPE)],
        q.constants + constants,
    )  # fmt: skip
    io = [q.describe("image", "in", SHAPE)], [q.describe("out", "out", OUT_SHAPE)]
    return net, io, V68


def float_io_net():
    """Quantized inside, float32 outside."""
    q = Quantizer(8)
    dequantized, constants = weights()
    nodes = [
        *dequantized, q.to_code("image", "image_q", "in"), q.to_real("image_q", "x", "in"),
        conv("x"), q.to_code("y", "y_q", "out"), q.to_real("y_q", "out", "out"),
    ]  # fmt: skip
    real = TensorProto.FLOAT
    net = model(
        "real", nodes, [("image", real, SHAPE)], [("out", real, OUT_SHAPE)],
        q.constants + constants,
    )  # fmt: skip
    io = [tensor("image", "float32", SHAPE)], [tensor("out", "float32", OUT_SHAPE)]
    return net, io, {**V68, "offload_graph_io_quantization": "0"}


def pair_net():
    """Two inputs whose order matters, two outputs whose names are no file names."""
    q = Quantizer(8)
    dequantized, constants = weights()
    nodes = [
        *dequantized, q.to_real("left", "l", "in"), q.to_real("right", "r", "in"),
        helper.make_node("Sub", ["l", "r"], ["d"], name="sub"),
        q.to_code("d", "head/diff:0", "mid"), q.to_real("head/diff:0", "x", "mid"), conv("x"),
        q.to_code("y", "out", "out"),
    ]  # fmt: skip
    inputs = [("left", q.onnx, SHAPE), ("right", q.onnx, SHAPE)]
    outputs = [("head/diff:0", q.onnx, SHAPE), ("out", q.onnx, OUT_SHAPE)]
    net = model("pair", nodes, inputs, outputs, q.constants + constants)
    described = [q.describe("head/diff:0", "mid", SHAPE), q.describe("out", "out", OUT_SHAPE)]
    return net, ([q.describe(n, "in", SHAPE) for n in ("left", "right")], described), V68


def pick_net():
    """An int32 input: which rows of a table to take."""
    q = Quantizer(8)
    table = np.random.default_rng(2).integers(0, 255, (16, 4)).astype(np.uint8)
    nodes = [
        q.to_real("table", "t", "in"), helper.make_node("Gather", ["t", "rows"], ["g"], name="g"),
        q.to_code("g", "out", "in"),
    ]  # fmt: skip
    constants = [*q.constants, numpy_helper.from_array(table, "table")]
    net = model(
        "pick", nodes, [("rows", TensorProto.INT32, [5])], [("out", q.onnx, [5, 4])], constants
    )
    return net, ([tensor("rows", "int32", [5])], [q.describe("out", "in", [5, 4])]), V68


def fp16_net():
    """Not quantized at all: v73 computes it in FP16."""
    values = np.random.default_rng(3).normal(size=(4, 3, 3, 3)).astype(np.float32) / 4
    real = TensorProto.FLOAT
    net = model(
        "fp16", [conv("image"), helper.make_node("Relu", ["y"], ["out"])],
        [("image", real, SHAPE)], [("out", real, OUT_SHAPE)],
        [numpy_helper.from_array(values, "w")],
    )  # fmt: skip
    io = [tensor("image", "float32", SHAPE)], [tensor("out", "float32", OUT_SHAPE)]
    return net, io, V73


def parted_net():
    """An op that the NPU does not have lies between two that it has: two graphs in one binary."""
    q = Quantizer(8)
    dequantized, constants = weights()
    nodes = [
        *dequantized, q.to_real("image", "x", "in"), conv("x"), q.to_code("y", "y_q", "out"),
        q.to_real("y_q", "y_r", "out"), helper.make_node("Hardmax", ["y_r"], ["h"], axis=1),
        q.to_code("h", "h_q", "out"), q.to_real("h_q", "h_r", "out"),
        helper.make_node("Add", ["h_r", "h_r"], ["s"], name="add"), q.to_code("s", "sum", "out"),
    ]  # fmt: skip
    outputs = [("sum", q.onnx, OUT_SHAPE)]
    return model("parted", nodes, [("image", q.onnx, SHAPE)], outputs, q.constants + constants)


NETS = {
    "u8": lambda: typed_net(8, "u8"),
    "u16": lambda: typed_net(16, "u16"),
    "real": float_io_net,
    "pair": pair_net,
    "pick": pick_net,
    "fp16": fp16_net,
}


def compile_net(source: Path, context: Path, options: dict, strict=True, **sharing) -> None:
    """Compile ``source`` to ``context`` and the binary beside it."""
    device = next(each for each in ort.get_ep_devices() if each.ep_name == PROVIDER)
    session = ort.SessionOptions()
    entries = {
        "ep.context_enable": "1",
        "ep.context_file_path": str(context),
        "ep.context_embed_mode": "0",
        "session.disable_cpu_ep_fallback": str(int(strict)),
        **{f"ep.{key}": value for key, value in sharing.items()},
    }
    for key, value in entries.items():
        session.add_session_config_entry(key, value)
    session.add_provider_for_devices([device], {"backend_path": qnn.get_qnn_htp_path(), **options})
    ort.InferenceSession(source, sess_options=session)


def graph_name(context: Path) -> str:
    """The name that the compiled graph got."""
    node = onnx.load(context, load_external_data=False).graph.node[0]
    (name,) = [a.s.decode() for a in node.attribute if a.name == "partition_name"]
    return name


def sample(io, rng) -> dict:
    values = {}
    for each in io[0]:
        if each["dtype"].startswith("ufixed"):
            kind = np.dtype(each["dtype"].replace("ufixed", "uint"))
            values[each["name"]] = rng.integers(0, np.iinfo(kind).max, each["shape"], kind, True)
        elif each["dtype"] == "int32":
            values[each["name"]] = rng.integers(0, 16, each["shape"]).astype(np.int32)
        else:
            values[each["name"]] = rng.uniform(-1, 1, each["shape"]).astype(np.float32)
    return values


def main(directory: Path) -> None:
    ort.register_execution_provider_library(PROVIDER, qnn.get_library_path())
    for name, make in NETS.items():
        net, io, options = make()
        source, context = directory / f"{name}.onnx", directory / f"{name}_ctx.onnx"
        onnx.save(net, source)
        compile_net(source, context, options)
        (directory / f"{name}_ctx_qnn.bin").rename(directory / f"{name}.bin")
        described = {"name": graph_name(context), "inputs": io[0], "outputs": io[1]}
        (directory / f"{name}.json").write_text(json.dumps(described))
        # Node by node in float: fused into QLinearConv, products of 8 bits saturate on some CPUs.
        plain = ort.SessionOptions()
        plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        cpu = ort.InferenceSession(source, plain, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(4)
        kept = {}
        for index in range(2):
            inputs = sample(io, rng)
            outputs = cpu.run([each["name"] for each in io[1]], inputs)
            kept |= {f"in{index}_{place}": value for place, value in enumerate(inputs.values())}
            kept |= {f"out{index}_{place}": value for place, value in enumerate(outputs)}
        np.savez(directory / f"{name}.npz", **kept)
    shared = directory / "shared_ctx.onnx"
    compile_net(directory / "u8.onnx", shared, V68, share_ep_contexts="1")
    compile_net(
        directory / "pair.onnx", directory / "shared_second.onnx", V68,
        share_ep_contexts="1", stop_share_ep_contexts="1",
    )  # fmt: skip
    (directory / "shared_ctx_qnn.bin").rename(directory / "shared.bin")
    onnx.save(parted_net(), directory / "parted.onnx")
    compile_net(directory / "parted.onnx", directory / "parted_ctx.onnx", V68, strict=False)
    (directory / "parted_ctx_qnn.bin").rename(directory / "parted.bin")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
