"""Small FP32 networks made in code, and AIMET encodings for them from what flows through them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

CLASSES, SIZE = 3, 8
FLOAT = onnx.TensorProto.FLOAT


def classifier(*, swap: bool = False, gain: float = 1.0) -> onnx.ModelProto:
    """Tells which of three channels is the brightest: ``x`` 1x3x8x8 -> ``y`` 1x3.

    ``swap`` exchanges the scores of classes 0 and 1; ``gain`` multiplies all scores.
    """
    rng = np.random.default_rng(0)
    conv = np.zeros((CLASSES, CLASSES, 3, 3), np.float32)
    for channel in range(CLASSES):
        conv[channel, channel] = 1 / 9
    conv += rng.normal(0, 0.002, conv.shape).astype(np.float32)
    rows = [1, 0, 2] if swap else [0, 1, 2]
    dense = (np.eye(CLASSES, dtype=np.float32) * gain)[rows]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="fc", transB=1),
    ]
    return _model(nodes, {"w1": conv, "w2": dense}, [1, CLASSES, SIZE, SIZE], [1, CLASSES])


def overflow() -> onnx.ModelProto:
    """y = (300 x) ** 4, far beyond what FP16 can hold: ``x`` 1x3x8x8 -> ``y`` the same.

    The HTP does not give infinity there: it stops at 131008 (measured on v73's emulator).
    """
    shape = [1, CLASSES, SIZE, SIZE]
    nodes = [
        helper.make_node("Mul", ["x", "k"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "a"], ["b"], name="second"),
        helper.make_node("Mul", ["b", "b"], ["y"], name="third"),
    ]
    return _model(nodes, {"k": np.float32([300.0])}, shape, shape)


def nan_weight() -> onnx.ModelProto:
    """A convolution with one NaN among its weights: ``x`` 1x3x8x8 -> ``y`` the same.

    The HTP gives no NaN: it takes it for a large number, 98304 (measured on v73's emulator).
    """
    shape = [1, CLASSES, SIZE, SIZE]
    weights = np.zeros((CLASSES, CLASSES, 3, 3), np.float32)
    weights[0, 0, 0, 0] = np.nan
    weights[1, 1, 1, 1] = 1
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])
    return _model([node], {"w": weights}, shape, shape)


def wide(channels: int = 64, side: int = 160) -> onnx.ModelProto:
    """Activations larger than 2 MB of VTCM that are wanted again after a global pooling: it spills.

    The pooling needs all of its input before the multiplication can begin, so tiling is no help.
    """
    rng = np.random.default_rng(1)
    values = {
        "w0": rng.normal(0, 0.1, (channels, 3, 3, 3)).astype(np.float32),
        "w1": rng.normal(0, 0.1, (channels, channels, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["b"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["b"], ["s"], name="squeeze"),
        helper.make_node("Mul", ["b", "s"], ["m"], name="excite"),
        helper.make_node("Add", ["a", "m"], ["g"], name="add"),
        helper.make_node("GlobalAveragePool", ["g"], ["y"], name="pool"),
    ]
    return _model(nodes, values, [1, 3, side, side], [1, channels, 1, 1])


def unsupported() -> onnx.ModelProto:
    """A quantized-looking network with one op that the HTP does not take (a Det)."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Det", ["r"], ["d"], name="determinant"),
        helper.make_node("Relu", ["d"], ["y"], name="last"),
    ]
    return _model(nodes, {}, [1, CLASSES, SIZE, SIZE], [1, CLASSES])


def _model(nodes, values, shape_in, shape_out) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape_in)],
        [helper.make_tensor_value_info("y", FLOAT, shape_out)],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def images(count: int = 24) -> list[tuple[np.ndarray, int]]:
    """Pictures with one bright channel each, and its number."""
    rng = np.random.default_rng(2)
    found = []
    for index in range(count):
        label = index % CLASSES
        image = rng.uniform(0, 0.3, (1, CLASSES, SIZE, SIZE)).astype(np.float32)
        image[0, label] += rng.uniform(0.3, 0.7)
        found.append((image, label))
    return found


def encodings(model: onnx.ModelProto, samples: list[np.ndarray]) -> dict:
    """AIMET encodings 1.0.0, W8A8, with the ranges that ``samples`` reach."""
    ranges = _ranges(model, samples)
    weights = [
        record(init.name, np.abs(numpy_helper.to_array(init)).max(), symmetric=True)
        for init in model.graph.initializer
        if init.name.startswith("w")
    ]
    skipped = {"c", "f"}  # fused into the Relu; reshaped only
    return {
        "version": "1.0.0",
        "activation_encodings": [
            record(name, high, low) for name, (low, high) in ranges.items() if name not in skipped
        ],
        "param_encodings": weights,
    }


def record(name: str, high: float, low: float = 0.0, *, symmetric: bool = False) -> dict:
    """One per-tensor record: signed 8 bits where symmetric, else unsigned with an offset."""
    if symmetric:
        scale, offset = float(high) / 127, -128
    else:
        low, high = min(float(low), 0.0), max(float(high), 1e-6)
        scale = (high - low) / 255
        offset = round(low / scale)
    return {
        "name": name,
        "bw": 8,
        "dtype": "INT",
        "enc_type": "PER_TENSOR",
        "is_sym": symmetric,
        "offset": [offset],
        "scale": [scale],
    }


def _ranges(model: onnx.ModelProto, samples: list[np.ndarray]) -> dict[str, tuple[float, float]]:
    import onnxruntime

    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name != "y"]
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(
        opened.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: dict[str, tuple[float, float]] = {}
    for sample in samples:
        values = dict(zip(["y", *names], session.run(None, {"x": sample}), strict=True))
        for name, value in {"x": sample, **values}.items():
            low, high = found.get(name, (0.0, 0.0))
            found[name] = (min(low, value.min()), max(high, value.max()))
    return found


def write(folder: Path, name: str, model: onnx.ModelProto, samples=None) -> None:
    """Write ``name.onnx``, and ``name.encodings`` where there are samples."""
    onnx.save(model, str(folder / f"{name}.onnx"))
    if samples is not None:
        text = json.dumps(encodings(model, samples))
        (folder / f"{name}.encodings").write_text(text)


def noise(side: int) -> np.ndarray:
    """One picture of noise, 1x3xsidexside."""
    return np.random.default_rng(4).uniform(0, 1, (1, 3, side, side)).astype(np.float32)
