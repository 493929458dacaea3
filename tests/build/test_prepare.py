from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from htp_compile import V68, V73, compile_for_v68, needs_compiler
from quantized_networks import (
    Network,
    derive_encodings,
    run_all,
    samples_for,
    wide_network,
    write_pair,
)

from pytest_qnnctx.build.quantize.expected import read_expected
from pytest_qnnctx.build.quantize.prepare import ExpectedEncoding, prepare
from pytest_qnnctx.errors import ProductFailure, UsageError
from pytest_qnnctx.model import EncodingsUse, Model

AIMET = Path(__file__).parent.parent / "data" / "aimet"
TINY = AIMET / "tiny.onnx"
REFERENCE = AIMET / "tiny_qdq_reference.onnx"


@pytest.fixture
def said():
    return []


def go(model, tmp_path, said=None, target=V68):
    work = tmp_path / "work"
    work.mkdir()
    return prepare(model, target, work, (said if said is not None else []).append)


def tiny_inputs(count=4):
    random = np.random.default_rng(0)
    return [{"x": random.standard_normal((1, 3, 32, 32)).astype(np.float32)} for _ in range(count)]


# --- one case after the other -----------------------------------------------------------------


def test_fp32_alone_is_passed_on(tmp_path):
    prepared = go(Model(TINY), tmp_path)
    assert (prepared.path, prepared.quantization, prepared.use) == (TINY, "float32", None)
    assert prepared.expected == {}


def test_qdq_is_taken_as_it_is(tmp_path):
    prepared = go(Model(REFERENCE), tmp_path)
    assert prepared.path == REFERENCE
    assert prepared.quantization == "w8a16"
    assert prepared.use == EncodingsUse("QDQ", 7)
    assert set(prepared.expected) == {"x", "W", "r", "g", "f", "W2", "y"}
    assert prepared.expected["y"] == ExpectedEncoding(
        (float(np.float32(1.3444014760479643e-05)),), (32750,), 16, signed=False
    )
    assert prepared.expected["W"].axis == 0
    assert len(prepared.expected["W"].scale) == 16


def test_qdq_with_encodings_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="already quantized"):
        go(Model(REFERENCE, encodings=AIMET / "tiny_1.0.0.encodings"), tmp_path)


def test_qdq_with_calibration_says_that_it_is_unused(tmp_path, said):
    prepared = go(Model(REFERENCE, calibration=tiny_inputs()), tmp_path, said)
    assert [finding.kind for finding in prepared.findings] == ["calibration_unused"]
    assert "not used" in said[-1]


def test_qdq_with_dynamic_shapes(tmp_path):
    model = onnx.load(str(REFERENCE))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    path = tmp_path / "dynamic.onnx"
    onnx.save(model, str(path))
    prepared = go(Model(path, input_shapes={"x": (1, 3, 32, 32)}), tmp_path)
    assert prepared.path.parent == tmp_path / "work"
    fixed = onnx.load(str(prepared.path))
    assert fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    assert read_expected(fixed) == prepared.expected
    assert len(fixed.graph.node) == len(model.graph.node), "weights keep their Q/DQ pairs"


@pytest.mark.parametrize(
    ("version", "total", "inherited"),
    [("0.6.1", 6, ("f",)), ("1.0.0", 6, ("f",)), ("2.0.0", 8, ())],
)
def test_encodings_are_applied(tmp_path, version, total, inherited):
    model = Model(TINY, encodings=AIMET / f"tiny_{version}.encodings")
    prepared = go(model, tmp_path)
    assert prepared.quantization == "w8a16"
    assert prepared.use == EncodingsUse(version, total, inherited=inherited, derived=("B",))
    assert len(prepared.expected) == total
    assert prepared.expected["x"] == ExpectedEncoding(
        (0.00011970659065202926,), (32575,), 16, signed=False
    )
    assert prepared.expected["W2"].axis == 0


def test_what_is_expected_is_what_was_written(tmp_path):
    path, encodings = write_pair(tmp_path, wide_network(), derive_encodings(wide_network()))
    prepared = go(Model(path, encodings=encodings), tmp_path)
    assert len(prepared.expected) == prepared.use.total == 21
    written = read_expected(onnx.load(str(prepared.path)))
    for name, wanted in prepared.expected.items():
        assert np.allclose(written[name].scale, wanted.scale, rtol=1e-6), name
        assert written[name].zero_point == wanted.zero_point
        assert (written[name].bits, written[name].signed) == (wanted.bits, wanted.signed)
    known = {name for node in wide_network().graph.node for name in (*node.input, *node.output)}
    assert set(prepared.use.inherited) | set(prepared.use.derived) <= known


def test_drift_fails_before_any_tool_runs(tmp_path):
    data = json.loads((AIMET / "tiny_1.0.0.encodings").read_text())
    data["activation_encodings"][1]["name"] = "ghost"
    (tmp_path / "drifted.encodings").write_text(json.dumps(data))
    with pytest.raises(ProductFailure) as caught:
        go(Model(TINY, encodings=tmp_path / "drifted.encodings"), tmp_path)
    assert {f.kind for f in caught.value.findings} == {"encoding_unmatched", "tensor_uncovered"}
    assert list((tmp_path / "work").iterdir()) == []


def test_uncovered_tensors_on_a_target_with_float(tmp_path):
    data = json.loads((AIMET / "tiny_1.0.0.encodings").read_text())
    data["activation_encodings"] = [e for e in data["activation_encodings"] if e["name"] != "g"]
    (tmp_path / "partial.encodings").write_text(json.dumps(data))
    prepared = go(Model(TINY, encodings=tmp_path / "partial.encodings"), tmp_path, target=V73)
    assert prepared.use.uncovered == ("g", "f")
    assert not {"g", "f"} & set(read_expected(onnx.load(str(prepared.path))))
    run_all(onnx.load(str(prepared.path)), tiny_inputs(1)[0])


@needs_compiler
def test_calibration_alone(tmp_path, said):
    prepared = go(Model(TINY, calibration=tiny_inputs()), tmp_path, said)
    assert prepared.quantization == "w8a8"
    assert prepared.use is None
    assert prepared.expected["x"].bits == 8
    assert any("calibrating tiny with 4 samples" in line for line in said)
    assert compile_for_v68(prepared.path, tmp_path) == ""


def test_a_users_directory_is_left_alone(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for name in ("tiny.onnx", "aim_100.data", "tiny_1.0.0.encodings"):
        shutil.copy(AIMET / name, home)
    before = sorted(path.name for path in home.iterdir())
    go(Model(home / "tiny.onnx", calibration=tiny_inputs()), tmp_path)
    assert sorted(path.name for path in home.iterdir()) == before


@needs_compiler
def test_calibration_fills_what_the_encodings_leave_out(tmp_path, said):
    data = json.loads((AIMET / "tiny_1.0.0.encodings").read_text())
    data["activation_encodings"] = [e for e in data["activation_encodings"] if e["name"] != "g"]
    (tmp_path / "partial.encodings").write_text(json.dumps(data))
    model = Model(TINY, encodings=tmp_path / "partial.encodings", calibration=tiny_inputs())
    prepared = go(model, tmp_path, said)
    assert prepared.use.uncovered == ()
    assert prepared.use.total == 5
    assert prepared.use.derived[0] == "B"
    assert "g (range from calibration)" in prepared.use.derived
    assert "g" not in prepared.expected, "no encoding of the file asked for it"
    filled = read_expected(onnx.load(str(prepared.path)))["g"]
    seen = max(run_all(onnx.load(str(TINY)), s)["g"].max() for s in tiny_inputs())
    assert filled.bits == 16
    assert filled.scale[0] * 65535 == pytest.approx(seen, rel=1e-4)
    assert compile_for_v68(prepared.path, tmp_path) == ""


def test_calibration_hides_no_drift(tmp_path):
    data = json.loads((AIMET / "tiny_1.0.0.encodings").read_text())
    data["activation_encodings"][1]["name"] = "ghost"
    (tmp_path / "drifted.encodings").write_text(json.dumps(data))
    model = Model(TINY, encodings=tmp_path / "drifted.encodings", calibration=tiny_inputs())
    with pytest.raises(ProductFailure, match="ghost"):
        go(model, tmp_path)


def test_calibration_fills_no_weights(tmp_path):
    data = json.loads((AIMET / "tiny_1.0.0.encodings").read_text())
    data["param_encodings"].pop()
    (tmp_path / "partial.encodings").write_text(json.dumps(data))
    model = Model(TINY, encodings=tmp_path / "partial.encodings", calibration=tiny_inputs())
    with pytest.raises(ProductFailure, match="'W2'"):
        go(model, tmp_path)


def test_calibration_that_nothing_needs_is_said_to_be_unused(tmp_path, said):
    model = Model(TINY, encodings=AIMET / "tiny_1.0.0.encodings", calibration=tiny_inputs())
    prepared = go(model, tmp_path, said)
    assert [finding.kind for finding in prepared.findings] == ["calibration_unused"]
    assert any("cover every activation" in line for line in said)


# --- mistakes ---------------------------------------------------------------------------------


def test_dynamic_inputs_are_named(tmp_path):
    net = Network()
    net.add("Relu", ["image"], "y")
    path = tmp_path / "dynamic.onnx"
    onnx.save(net.model({"image": ("n", 3)}, {"y": ("n", 3)}), str(path))
    with pytest.raises(ProductFailure, match="image") as caught:
        go(Model(path), tmp_path)
    assert 'input_shapes={"image": (1, 3)}' in str(caught.value)


def test_dynamic_shapes_and_encodings_together(tmp_path):
    model = wide_network()
    data = derive_encodings(model)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    path, encodings = write_pair(tmp_path, model, data)
    shapes = {"x": (1, 8, 16, 16)}
    prepared = go(Model(path, encodings=encodings, input_shapes=shapes), tmp_path)
    assert prepared.quantization == "w8a16"


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([{"x": np.zeros((1, 3, 8, 8), np.float32)}], "the model needs .1, 3, 32, 32."),
        ([{"image": np.zeros((1, 3, 32, 32), np.float32)}], "'image', which is no input"),
    ],
)
def test_calibration_that_does_not_fit(tmp_path, samples, said):
    with pytest.raises(UsageError, match=said):
        go(Model(TINY, calibration=samples), tmp_path)


@pytest.mark.parametrize("content", [b"", b"junk"])
def test_a_model_file_that_is_none(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ProductFailure, match=r"m\.onnx"):
        go(Model(path), tmp_path)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(UsageError, match="absent"):
        go(Model(tmp_path / "absent.onnx"), tmp_path)
    with pytest.raises(UsageError, match="absent"):
        prepare(Model(TINY, encodings=tmp_path / "absent"), V68, tmp_path, lambda line: None)


def test_the_wide_network_from_calibration(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(wide_network(), str(path))
    prepared = go(Model(path, calibration=samples_for(wide_network())), tmp_path)
    assert prepared.quantization == "w8a8"
