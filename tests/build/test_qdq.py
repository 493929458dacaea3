from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from htp_compile import V68, V73, compile_for_v68, needs_compiler
from onnx import TensorProto, helper, numpy_helper
from quantized_networks import Network, derive_encodings, samples_for, wide_network, write_pair

from pytest_qnnctx.build.quantize.encodings import VERSIONS
from pytest_qnnctx.build.quantize.expected import read_expected
from pytest_qnnctx.build.quantize.prepare import prepare
from pytest_qnnctx.errors import ProductFailure
from pytest_qnnctx.model import Model

AIMET = Path(__file__).parent.parent / "data" / "aimet"


def run(path, feeds):
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def quantize(tmp_path, model, data, target=V68):
    path, encodings = write_pair(tmp_path, model, data)
    work = tmp_path / "work"
    work.mkdir()
    return prepare(Model(path, encodings=encodings), target, work, lambda line: None)


def quantize_tiny(tmp_path, version):
    model = Model(AIMET / "tiny.onnx", encodings=AIMET / f"tiny_{version}.encodings")
    return prepare(model, V68, tmp_path, lambda line: None)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_equals_aimets_own_export(tmp_path, version):
    prepared = quantize_tiny(tmp_path, version)
    assert prepared.quantization == "w8a16"
    quantum = 1.3444014760479643e-05  # of the output y
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 3, 32, 32)).astype(np.float32)
        ours = run(prepared.path, {"x": x})[0]
        aimets = run(AIMET / "tiny_qdq_reference.onnx", {"x": x})[0]
        assert np.abs(ours - aimets).max() <= 1.01 * quantum
        floats = run(AIMET / "tiny.onnx", {"x": x})[0]
        assert np.abs(ours - floats).max() > 10 * quantum, "it is quantized at all"


@pytest.mark.parametrize("version", VERSIONS)
def test_scales_and_zero_points_are_those_of_aimets_export(tmp_path, version):
    prepared = quantize_tiny(tmp_path, version)
    ours = read_expected(onnx.load(str(prepared.path)))
    aimets = read_expected(onnx.load(str(AIMET / "tiny_qdq_reference.onnx")))
    assert set(aimets) == {"x", "W", "r", "g", "f", "W2", "y"}
    assert {name: ours[name] for name in aimets} == aimets


@needs_compiler
@pytest.mark.parametrize("version", VERSIONS)
def test_it_compiles_for_v68(tmp_path, version):
    assert compile_for_v68(quantize_tiny(tmp_path, version).path, tmp_path) == ""


WIDTHS = {
    "w8a8": {"activation_bits": 8},
    "w8a16": {"activation_bits": 16},
    "w4,8a16": {"param_bits": 4, "bits_of": {"wd": 8, "wt": 8}},
    "w8a8,16": {"activation_bits": 8, "bits_of": {"res": 16, "gap": 16, "soft": 16}},
}


@needs_compiler
@pytest.mark.parametrize("text", WIDTHS)
def test_a_wide_network_compiles_for_v68(tmp_path, text):
    model = wide_network()
    prepared = quantize(tmp_path, model, derive_encodings(model, **WIDTHS[text]))
    assert prepared.quantization == text
    assert compile_for_v68(prepared.path, tmp_path) == ""


def test_what_is_rewritten_still_computes_the_same(tmp_path):
    """At 16 bits throughout, only rounding is left between the FP32 network and ours."""
    model = wide_network()
    data = derive_encodings(model, activation_bits=16, param_bits=16)
    prepared = quantize(tmp_path, model, data, V73)
    for sample in samples_for(model, 2):
        for ours, floats in zip(
            run(prepared.path, sample), run(tmp_path / "net.onnx", sample), strict=True
        ):
            assert np.abs(ours - floats).max() < 2e-3 * np.abs(floats).max()


def test_interface_stays_float_and_keeps_its_names(tmp_path):
    prepared = quantize(tmp_path, wide_network(), derive_encodings(wide_network()))
    graph = onnx.load(str(prepared.path)).graph
    for info, name in zip([*graph.input, *graph.output], ["x", "y", "soft"], strict=True):
        assert info.name == name
        assert info.type.tensor_type.elem_type == TensorProto.FLOAT
    assert graph.node[-1].op_type == "DequantizeLinear"


def test_weights_are_stored_as_integers_and_nothing_else_is_left(tmp_path):
    prepared = quantize(tmp_path, wide_network(), derive_encodings(wide_network()))
    stored = {t.name: t for t in onnx.load(str(prepared.path)).graph.initializer}
    assert stored["w1_q"].data_type == TensorProto.INT8
    assert stored["b1_q"].data_type == TensorProto.INT32
    kept = {n for n, t in stored.items() if t.data_type == TensorProto.FLOAT and len(t.dims) > 1}
    assert kept == set()


def test_the_bias_grid_is_input_times_weight(tmp_path):
    prepared = quantize_tiny(tmp_path, "1.0.0")
    expected = read_expected(onnx.load(str(prepared.path)))
    product = np.array(expected["W"].scale) * expected["x"].scale[0]
    assert expected["B"].bits == 32
    assert np.allclose(expected["B"].scale, product, rtol=1e-6)


def test_a_bias_beyond_int32_gets_a_grid_that_holds_it(tmp_path):
    net = Network()
    net.constant("w", np.full((2, 3, 1, 1), 1e-9, np.float32))
    net.constant("b", np.float32([5.0, -7.0]))
    net.add("Conv", ["x", "w", "b"], "y")
    model = net.model({"x": (1, 3, 4, 4)}, {"y": (1, 2, 4, 4)})
    prepared = quantize(tmp_path, model, derive_encodings(model))
    values = run(prepared.path, samples_for(model, 1)[0])[0]
    assert np.allclose(values[0, :, 0, 0], [5, -7], atol=1e-3)


def test_a_shared_bias_fits_each_convolution(tmp_path):
    net = Network()
    bias = net.weight("b", 4)
    net.add("Conv", ["x", net.weight("w", 4, 4, 1, 1), bias], "m")
    net.add("Conv", ["m", net.weight("v", 4, 4, 1, 1, scale=3.0), bias], "y")
    model = net.model({"x": (1, 4, 2, 2)}, {"y": (1, 4, 2, 2)})
    prepared = quantize(tmp_path, model, derive_encodings(model))
    sample = samples_for(model, 1)[0]
    ours, floats = run(prepared.path, sample)[0], run(tmp_path / "net.onnx", sample)[0]
    assert np.abs(ours - floats).max() < 0.02 * np.abs(floats).max()


@pytest.mark.parametrize("zero", [0, 3000])
@pytest.mark.parametrize("op", ["Relu", "Clip"])
@needs_compiler
def test_fused_activations_whatever_their_range(tmp_path, op, zero):
    net = Network()
    net.add("Conv", ["x", net.weight("w", 4, 4, 1, 1)], "c")
    bounds = [net.constant("low", np.float32(0)), net.constant("high", np.float32(0.5))]
    net.add(op, ["c", *(bounds if op == "Clip" else [])], "y")
    model = net.model({"x": (1, 4, 4, 4)}, {"y": (1, 4, 4, 4)})
    data = derive_encodings(model)
    next(e for e in data["activation_encodings"] if e["name"] == "y")["offset"] = [-zero]
    prepared = quantize(tmp_path, model, data)
    sample = samples_for(model, 1)[0]
    ours, floats = run(prepared.path, sample)[0], run(tmp_path / "net.onnx", sample)[0]
    assert np.abs(ours - floats).max() < 0.05
    assert compile_for_v68(prepared.path, tmp_path) == ""


def test_signed_activations_become_the_same_unsigned_grid(tmp_path):
    data = json.loads((AIMET / "tiny_2.0.0.encodings").read_text())
    for entry in data["encodings"]:
        if entry["name"] == "y":
            entry.update(output_dtype="int16", y_zero_point=32750 - 32768)
    (tmp_path / "signed.encodings").write_text(json.dumps(data))
    model = Model(AIMET / "tiny.onnx", encodings=tmp_path / "signed.encodings")
    prepared = prepare(model, V68, tmp_path, lambda line: None)
    given = prepared.expected["y"]
    assert (given.signed, given.zero_point) == (False, (32750,))
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    reference = run(AIMET / "tiny_qdq_reference.onnx", {"x": x})[0]
    assert np.abs(run(prepared.path, {"x": x})[0] - reference).max() < 2e-5


@needs_compiler
def test_old_opsets_take_16_bits_too(tmp_path):
    net = Network(opset=11)
    net.add("Conv", ["x", net.weight("w", 4, 3, 3, 3)], "c")
    net.add("Relu", ["c"], "y")
    model = net.model({"x": (1, 3, 8, 8)}, {"y": (1, 4, 6, 6)})
    prepared = quantize(tmp_path, model, derive_encodings(model))
    assert compile_for_v68(prepared.path, tmp_path) == ""


def test_opset_21_uses_the_standard_ops(tmp_path):
    net = Network(opset=21)
    net.add("Sigmoid", ["x"], "y")
    model = net.model({"x": (1, 4)}, {"y": (1, 4)})
    prepared = quantize(tmp_path, model, derive_encodings(model))
    domains = {node.domain for node in onnx.load(str(prepared.path)).graph.node}
    assert domains == {""}


def test_a_half_precision_model_is_refused(tmp_path):
    half = np.ones((4, 4), np.float16)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (1, 4))],
        [numpy_helper.from_array(half, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    tensors = [
        {"name": n, "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "scale": [1], "offset": [0]}
        for n in ("x", "w", "y")
    ]
    data = {"version": "1.0.0", "activation_encodings": tensors, "param_encodings": []}
    with pytest.raises(ProductFailure, match="float32"):
        quantize(tmp_path, model, data)


@needs_compiler
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("op", ["LayerNormalization", "BatchNormalization"])
def test_normalizations_of_their_own(tmp_path, op, bits):
    net = Network()
    net.add("Sigmoid", ["x"], "s")
    gamma, beta = net.weight("gamma", 8), net.weight("beta", 8)
    if op == "LayerNormalization":
        net.add(op, ["s", gamma, beta], "y", axis=-1)
        shape = (1, 4, 8)
    else:
        net.constant("var", np.linspace(0.5, 2, 8).astype(np.float32))
        net.add(op, ["s", gamma, beta, net.weight("mean", 8), "var"], "y")
        shape = (1, 8, 4, 4)
    model = net.model({"x": shape}, {"y": shape})
    data = derive_encodings(model, activation_bits=bits)
    if op == "LayerNormalization":
        largest = float(np.abs(numpy_helper.to_array(net.weights[0])).max())
        data["param_encodings"].append(
            {
                "name": "gamma",
                "bw": 8,
                "dtype": "INT",
                "enc_type": "PER_TENSOR",
                "is_sym": True,
                "scale": [largest / 127],
                "offset": [-128],
            }
        )
    prepared = quantize(tmp_path, model, data)
    sample = samples_for(model, 1)[0]
    ours, floats = run(prepared.path, sample)[0], run(tmp_path / "net.onnx", sample)[0]
    assert np.abs(ours - floats).max() < 0.05 * np.abs(floats).max()
    assert compile_for_v68(prepared.path, tmp_path) == ""
