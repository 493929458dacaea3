from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from quantized_networks import Network

from pytest_qnnctx.build.onnx_file import load_model
from pytest_qnnctx.build.quantize.graph import view
from pytest_qnnctx.build.quantize.shapes import fix_shapes, is_static
from pytest_qnnctx.errors import ProductFailure, UsageError


def dynamic_model():
    net = Network()
    net.add("Shape", ["x"], "shape")
    net.constant("first", np.array([0]))
    net.constant("rest", np.array([-1]))
    net.add("Gather", ["shape", "first"], "batch", axis=0)
    net.add("Concat", ["batch", "rest"], "target", axis=0)
    net.add("Reshape", ["x", "target"], "flat")
    net.add("Relu", ["flat"], "y")
    return net.model({"x": ("batch", 3, None), "z": (1, 4)}, {"y": ("batch", "n")})


def test_fixed_shapes_reach_every_tensor():
    model = dynamic_model()
    assert not is_static(model)
    assert fix_shapes(model, {"x": (2, 3, 5)}, name="m") is True
    assert is_static(model)
    graph = view(model)
    assert graph.shapes["x"] == (2, 3, 5)
    assert graph.shapes["flat"] == graph.shapes["y"] == (2, 15)
    assert [node.op for node in graph.nodes] == ["Reshape", "Relu"]


def test_nothing_to_do_changes_nothing():
    model = Network()
    model.add("Relu", ["x"], "y")
    model = model.model({"x": (1, 4)}, {"y": (1, 4)})
    before = model.SerializeToString()
    assert fix_shapes(model, {}, name="m") is False
    assert fix_shapes(model, {"x": (1, 4)}, name="m") is False
    assert model.SerializeToString() == before


def test_left_over_dynamic_inputs_are_named_with_the_marker_to_write():
    with pytest.raises(ProductFailure) as caught:
        fix_shapes(dynamic_model(), {}, name="ocr")
    text = str(caught.value)
    assert "'ocr'" in text
    assert "input 'x' has the shape (batch, 3, ?)" in text
    assert 'input_shapes={"x": (1, 3, DIM2), "z": (1, 4)}' in text
    assert [finding.subject for finding in caught.value.findings] == ["x"]


def test_a_dynamic_batch_alone_gives_a_marker_that_can_be_pasted():
    net = Network()
    net.add("Relu", ["x"], "y")
    model = net.model({"x": ("n", 3, 48, 320)}, {"y": ("n", 3, 48, 320)})
    with pytest.raises(ProductFailure) as caught:
        fix_shapes(model, {}, name="m")
    marker = 'input_shapes={"x": (1, 3, 48, 320)}'
    assert caught.value.next_step.endswith(marker)
    shapes = eval(f"dict({marker})", {})["input_shapes"]
    assert fix_shapes(model, shapes, name="m")


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"image": (1, 3, 4)}, "its inputs: x .batch, 3, .., z .1, 4."),
        ({"x": (1, 3)}, "has .batch, 3, .."),
        ({"x": (1, 4, 4)}, "has .batch, 3, .."),
        ({"x": (1, 3, 0)}, "the shape .1, 3, 0."),
        ({"x": (1, 3, -1)}, "the shape"),
        ({"x": (1, 3, "W")}, "the shape"),
        ({"x": (1, 3, True)}, "the shape"),
    ],
)
def test_shapes_that_do_not_fit_are_usage_errors(shapes, said):
    with pytest.raises(UsageError, match=said):
        fix_shapes(dynamic_model(), shapes, name="m")


def test_a_weight_that_is_also_listed_as_input_is_no_input():
    net = Network()
    net.add("Add", ["x", net.weight("w", 1, 4)], "y")
    model = net.model({"x": ("n", 4)}, {"y": ("n", 4)})
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, ("k", 4)))
    assert fix_shapes(model, {"x": (2, 4)}, name="m")
    assert [info.name for info in model.graph.input] == ["x"]


def test_stale_inner_shapes_are_inferred_anew():
    net = Network()
    net.add("Relu", ["x"], "r")
    net.add("Relu", ["r"], "y")
    model = net.model({"x": ("n", 4)}, {"y": ("n", 4)})
    model.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, ("n", 4)))
    fix_shapes(model, {"x": (7, 4)}, name="m")
    assert view(model).shapes["r"] == (7, 4)


@pytest.mark.skipif(find_spec("rapidocr_onnxruntime") is None, reason="real models not installed")
@pytest.mark.parametrize(
    ("name", "shape", "output"),
    [
        ("ch_PP-OCRv4_rec_infer", (1, 3, 48, 320), (1, 40, 6625)),
        ("ch_PP-OCRv4_det_infer", (1, 3, 320, 320), (1, 1, 320, 320)),
    ],
)
def test_real_models(tmp_path, name, shape, output):
    import onnxruntime as ort

    path = Path(find_spec("rapidocr_onnxruntime").origin).parent / "models" / f"{name}.onnx"
    model = load_model(path)
    assert fix_shapes(model, {"x": shape}, name=name)
    graph = view(model)
    assert graph.shapes[graph.outputs[0]] == output
    inner = [name for name in graph.tensors if name not in graph.constants]
    assert all(isinstance(dim, int) for name in inner for dim in graph.shapes[name])
    onnx.save(model, str(tmp_path / "fixed.onnx"))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    values = [
        ort.InferenceSession(str(file), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for file in (path, tmp_path / "fixed.onnx")
    ]
    assert np.allclose(*values, atol=1e-5)
