from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import external_data_helper, numpy_helper
from quantized_networks import Network, wide_network

from pytest_qnnctx.build.files import model_files
from pytest_qnnctx.build.onnx_file import load_model, save_model
from pytest_qnnctx.build.quantize.graph import view
from pytest_qnnctx.errors import ProductFailure, QnnctxError, UsageError
from pytest_qnnctx.model import Model

AIMET = Path(__file__).parent.parent / "data" / "aimet"


def with_location(tmp_path, location):
    """A model whose weight claims to be stored at ``location``."""
    net = Network()
    net.add("Add", ["x", net.weight("w", 4)], "y")
    model = net.model({"x": (4,)}, {"y": (4,)})
    tensor = model.graph.initializer[0]
    external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read():
    model = load_model(AIMET / "tiny.onnx")
    weight = next(t for t in model.graph.initializer if t.name == "W")
    assert numpy_helper.to_array(weight).shape == (16, 3, 3, 3)


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/hostname", "a/../../w.bin", "", "..\\w.bin"]
)
def test_external_data_outside_is_refused(tmp_path, location):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    path = with_location(tmp_path, location)
    for action in (load_model, lambda path: model_files(Model(path))):
        with pytest.raises(ProductFailure, match="outside the model's directory"):
            action(path)


def test_a_link_out_of_the_directory_is_refused(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    path = with_location(tmp_path, "w.bin")
    (path.parent / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ProductFailure, match="a link out of"):
        load_model(path)


def test_missing_and_short_external_data(tmp_path):
    path = with_location(tmp_path, "w.bin")
    with pytest.raises(ProductFailure, match=r"w\.bin is missing"):
        load_model(path)
    model = onnx.load(str(path), load_external_data=False)
    model.graph.initializer[0].external_data.add(key="length", value="16")
    path.write_bytes(model.SerializeToString())
    (path.parent / "w.bin").write_bytes(bytes(3))
    with pytest.raises(ProductFailure, match="external data"):
        view(load_model(path))
        numpy_helper.to_array(load_model(path).graph.initializer[0])


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08", b"\x00" * 100, b"{}"])
def test_files_that_are_no_model(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ProductFailure, match=r"m\.onnx"):
        load_model(path)


def test_paths_that_are_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "absent.onnx"):
        with pytest.raises(UsageError, match="cannot read the model"):
            load_model(path)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(st.data())
def test_damaged_models_end_in_a_sentence(tmp_path, data):
    raw = bytearray((AIMET / "tiny.onnx").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(len(raw) // 2, len(raw))) :]
    shutil.copy(AIMET / "aim_100.data", tmp_path / "aim_100.data")
    path = tmp_path / "m.onnx"
    path.write_bytes(raw)
    try:
        view(load_model(path))
        model_files(Model(path))
    except QnnctxError as error:
        assert str(error)


def test_a_broken_graph_is_named():
    model = wide_network()
    del model.graph.node[0]
    with pytest.raises(ProductFailure, match="uses tensor 'c1', which nothing before it makes"):
        view(model)
    model = wide_network()
    model.graph.output[0].name = "nowhere"
    with pytest.raises(ProductFailure, match="nothing makes its output 'nowhere'"):
        view(model)


def test_large_models_are_saved_with_external_data(tmp_path):
    model = wide_network()
    path = save_model(model, tmp_path / "big.onnx", external_from_bytes=1000)
    assert (tmp_path / "big.onnx.data").stat().st_size > 1000
    again = {t.name: t for t in load_model(path).graph.initializer}
    original = {t.name: t for t in wide_network().graph.initializer}
    for name, tensor in original.items():
        assert np.array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(again[name]))
    assert {p.name for p in tmp_path.iterdir()} == {"big.onnx", "big.onnx.data"}


def test_saving_replaces_whole_files_only(tmp_path):
    path = tmp_path / "m.onnx"
    save_model(wide_network(), path)
    save_model(wide_network(), path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


# --- model_files ------------------------------------------------------------------------------


def test_every_file_of_a_model_has_a_role(tmp_path):
    raw = tmp_path / "inputs" / "0.raw"
    raw.parent.mkdir()
    raw.write_bytes(bytes(4))
    listed = tmp_path / "list.txt"
    listed.write_text("x:=inputs/0.raw\n")
    files = model_files(
        Model(
            AIMET / "tiny.onnx",
            encodings=AIMET / "tiny_1.0.0.encodings",
            calibration=listed,
            reference=AIMET / "tiny_qdq_reference.onnx",
        )
    )
    assert files == {
        "onnx": AIMET / "tiny.onnx",
        "external_data:aim_100.data": AIMET / "aim_100.data",
        "encodings": AIMET / "tiny_1.0.0.encodings",
        "calibration": listed,
        "calibration:inputs/0.raw": raw,
        "reference": AIMET / "tiny_qdq_reference.onnx",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"encodings": "absent.encodings"},
        {"calibration": Path("absent.npz")},
        {"reference": "absent.onnx"},
    ],
)
def test_files_that_are_not_there(change):
    with pytest.raises(UsageError, match="absent"):
        model_files(Model(AIMET / "tiny.onnx", **change))


def test_calibration_arrays_are_no_files():
    model = Model(AIMET / "tiny.onnx", calibration=[{"x": np.zeros(3)}])
    assert "calibration" not in model_files(model)
