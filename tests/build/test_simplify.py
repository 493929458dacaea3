from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from quantized_networks import Network, run_all, samples_for, wide_network

from pytest_qnnctx.build.quantize.encoding_entries import Encoding
from pytest_qnnctx.build.quantize.graph import view
from pytest_qnnctx.build.quantize.simplify import simplify


def ops(model):
    return [node.op_type for node in model.graph.node]


def assert_same_outputs(before, after):
    names = [info.name for info in before.graph.output]
    for sample in samples_for(before, 2):
        old, new = run_all(before, sample), run_all(after, sample)
        for name in names:
            assert np.allclose(old[name], new[name], atol=1e-5), name


def activation(name):
    return Encoding(name, "activation", 8, (0.1,), (0,))


def test_the_wide_network_computes_the_same():
    model = wide_network()
    simple = copy.deepcopy(model)
    result = simplify(simple, {})
    assert "BatchNormalization" not in ops(simple)
    assert "MatMul" not in ops(simple)
    assert {"c3", "gamma", "beta", "mean", "var", "product"} <= result.gone
    assert result.made, "new tensors are told apart from the model's own"
    assert_same_outputs(model, simple)


def conv_norm(op="Conv", bias=True, group=1):
    net = Network()
    shape = (8, 8 // group, 1, 1)
    inputs = ["x", net.weight("w", *shape), *([net.weight("b", 8)] if bias else [])]
    net.add(op, inputs, "c", group=group)
    net.constant("gamma", np.linspace(-1, 2, 8).astype(np.float32))
    net.weight("beta", 8)
    net.weight("mean", 8)
    net.constant("var", np.linspace(0.5, 2, 8).astype(np.float32))
    net.add("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], "y")
    return net.model({"x": (1, 8, 4, 4)}, {"y": (1, 8, 4, 4)})


@pytest.mark.parametrize(
    ("op", "bias", "group"),
    [
        ("Conv", True, 1),
        ("Conv", False, 1),
        ("Conv", True, 8),
        ("ConvTranspose", True, 1),
        ("ConvTranspose", False, 1),
    ],
)
def test_batch_norm_folds(op, bias, group):
    model = conv_norm(op, bias, group)
    simple = copy.deepcopy(model)
    simplify(simple, {})
    assert ops(simple) == [op]
    assert_same_outputs(model, simple)


def test_a_folded_weights_encoding_is_scaled_with_it():
    model = conv_norm()
    weight = Encoding("w", "param", 8, (0.01,), (0,), signed=True)
    entries = simplify(model, {"w": weight}).entries
    factor = np.linspace(-1, 2, 8) / np.sqrt(np.linspace(0.5, 2, 8) + 1e-5)
    assert np.allclose(entries["w"].scale, 0.01 * np.abs(factor), rtol=1e-5)
    assert entries["w"].per_channel


def test_batch_norm_stays_where_the_tensor_between_has_an_encoding():
    model = conv_norm()
    simplify(model, {"c": activation("c")})
    assert ops(model) == ["Conv", "BatchNormalization"]


def test_batch_norm_stays_where_mirroring_would_leave_the_grid():
    weight = Encoding("w", "param", 8, (0.01,), (100,))
    model = conv_norm()
    simplify(model, {"w": weight})
    assert ops(model) == ["Conv", "BatchNormalization"]
    model = conv_norm()
    simplify(model, {"w": replace(weight, zero_point=(128,))})
    assert ops(model) == ["Conv"]


def linear(rank=3, between=False):
    net = Network()
    net.add("MatMul", ["x", net.weight("w", 8, 6)], "p")
    net.add("Add", ["p", net.weight("b", 6)], "y")
    shape = (1, *(4,) * (rank - 2))
    outputs = {"y": (*shape, 6)}
    if between:
        outputs["p"] = (*shape, 6)
    return net.model({"x": (*shape, 8)}, outputs)


@pytest.mark.parametrize(("rank", "expected"), [(2, ["Gemm"]), (4, ["Reshape", "Gemm", "Reshape"])])
def test_matmul_and_bias_become_a_gemm(rank, expected):
    model = linear(rank)
    simple = copy.deepcopy(model)
    simplify(simple, {})
    assert ops(simple) == expected
    assert_same_outputs(model, simple)


def test_matmul_stays_where_its_product_is_seen():
    model = linear(between=True)
    simplify(model, {})
    assert ops(model) == ["MatMul", "Add"]
    model = linear()
    simplify(model, {"p": activation("p")})
    assert ops(model) == ["MatMul", "Add"]


def test_a_folded_transpose_hands_its_weights_encoding_on():
    net = Network()
    net.add("Transpose", [net.weight("w", 6, 8)], "wt", perm=[1, 0])
    net.add("MatMul", ["x", "wt"], "y")
    model = net.model({"x": (2, 8)}, {"y": (2, 6)})
    scale = tuple(0.01 * k for k in range(1, 7))
    given = Encoding("w", "param", 8, scale, (0,) * 6, signed=True, per_channel=True, axis=0)
    result = simplify(model, {"w": given})
    assert ops(model) == ["MatMul"]
    assert "wt" in view(model).constants
    assert (result.entries["wt"].axis, result.entries["wt"].scale) == (1, scale)
    assert "w" in result.gone


def test_shape_computations_fold():
    net = Network()
    net.add("Shape", ["x"], "shape")
    net.constant("first", np.array([0]))
    net.constant("rest", np.array([-1]))
    net.add("Gather", ["shape", "first"], "batch", axis=0)
    net.add("Concat", ["batch", "rest"], "target", axis=0)
    net.add("Reshape", ["x", "target"], "y")
    model = net.model({"x": (2, 3, 4)}, {"y": (2, 12)})
    simplify(model, {})
    assert ops(model) == ["Reshape"]
    assert set(view(model).constants) == {"target"}


def test_constant_nodes_and_local_functions():
    double = helper.make_function(
        "local",
        "Double",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    three = helper.make_tensor("t", TensorProto.FLOAT, [1], [3.0])
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["three"], value=three),
            helper.make_node("Double", ["x"], ["d"], domain="local"),
            helper.make_node("Mul", ["d", "three"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[double], ir_version=8)
    before = onnx.ModelProto()
    before.CopyFrom(model)
    simplify(model, {})
    assert ops(model) == ["Add", "Mul"]
    assert_same_outputs(before, model)
