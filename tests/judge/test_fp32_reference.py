from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError
from pytest_qnnctx.judge.reference import reference_outputs
from pytest_qnnctx.samples import samples_sha256


def save(path, nodes, weights, *, elem=TensorProto.FLOAT, shape=(1, 4), out=TensorProto.FLOAT):
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", elem, shape)],
        [helper.make_tensor_value_info("y/0:0", out, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.fixture
def doubling(tmp_path):
    weights = {"two": np.array(2.0, np.float32)}
    return save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", "two"], ["y/0:0"])], weights)


@pytest.fixture
def run(tmp_path):
    def call(path, samples, **given):
        given = {"cache_dir": tmp_path / "cache", "model_sha256": "m", **given}
        return reference_outputs(path, samples, **given)

    return call


SAMPLES = [{"x": np.full((1, 4), i, np.float32)} for i in (1, 2)]


def test_outputs_of_each_sample(doubling, run):
    found = run(doubling, SAMPLES)
    assert [out["y/0:0"].tolist() for out in found] == [[[2.0] * 4], [[4.0] * 4]]
    assert found[0]["y/0:0"].dtype == np.float32


def test_kept_outputs_are_the_same_and_need_no_model(doubling, run, tmp_path):
    first = run(doubling, SAMPLES)
    doubling.unlink()
    again = run(doubling, SAMPLES)
    assert [list(out) for out in again] == [["y/0:0"], ["y/0:0"]]
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a["y/0:0"], b["y/0:0"])
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npz"]


def test_a_hit_does_not_import_onnxruntime(doubling, run, tmp_path):
    run(doubling, SAMPLES)
    code = (
        "import sys, pathlib, numpy as np\n"
        "from pytest_qnnctx.judge.reference import reference_outputs\n"
        "s = [{'x': np.full((1, 4), i, np.float32)} for i in (1, 2)]\n"
        "reference_outputs(pathlib.Path('gone.onnx'), s, cache_dir=pathlib.Path(sys.argv[1]),"
        " model_sha256='m')\n"
        "print('onnxruntime' in sys.modules)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "cache")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "changed",
    [
        {"model_sha256": "other"},
        {"optimize": False},
        {"input_shapes": {"x": (1, 4)}},
    ],
)
def test_what_the_outputs_depend_on_is_part_of_the_key(changed, doubling, run):
    run(doubling, SAMPLES)
    doubling.unlink()
    with pytest.raises(ProductFailure):
        run(doubling, SAMPLES, **changed)


def test_other_samples_are_run_anew(doubling, run):
    run(doubling, SAMPLES)
    assert run(doubling, [{"x": np.full((1, 4), 5, np.float32)}])[0]["y/0:0"][0, 0] == 10
    assert len(run(doubling, SAMPLES[:1])) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:200] + bytes([data[200] ^ 0xFF]) + data[201:],
        lambda data: b"PK" + bytes(300),
    ],
    ids=["empty", "half", "flipped", "zeros"],
)
def test_a_damaged_file_is_made_anew(damage, doubling, run, tmp_path):
    first = run(doubling, SAMPLES)
    (kept,) = (tmp_path / "cache").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    again = run(doubling, SAMPLES)
    np.testing.assert_array_equal(first[1]["y/0:0"], again[1]["y/0:0"])
    doubling.unlink()
    assert len(run(doubling, SAMPLES)) == 2


def test_every_flipped_byte_is_noticed_or_harmless(doubling, run, tmp_path):
    first = run(doubling, SAMPLES)
    (kept,) = (tmp_path / "cache").iterdir()
    whole = kept.read_bytes()
    for place in range(0, len(whole), 37):
        kept.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        again = run(doubling, SAMPLES)
        for a, b in zip(first, again, strict=True):
            assert list(a) == list(b)
            np.testing.assert_array_equal(a["y/0:0"], b["y/0:0"])


def test_a_cache_that_cannot_be_written(doubling, run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot be kept"):
        run(doubling, SAMPLES, cache_dir=tmp_path / "file")


def test_a_model_that_cannot_be_loaded(run, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(ProductFailure, match=r"cannot load broken\.onnx"):
        run(broken, SAMPLES)
    node = helper.make_node("Own", ["x"], ["y/0:0"], domain="own")
    with pytest.raises(ProductFailure, match="cannot load"):
        run(save(tmp_path / "own.onnx", [node], {}), SAMPLES)


@pytest.mark.parametrize(
    "sample",
    [{"x": np.zeros((1, 5), np.float32)}, {"z": np.zeros((1, 4), np.float32)}, {}],
    ids=["shape", "name", "none"],
)
def test_data_that_does_not_fit(sample, doubling, run):
    with pytest.raises(ProductFailure, match=r"m\.onnx, sample 1"):
        run(doubling, [SAMPLES[0], sample])


def test_no_samples(doubling, run):
    with pytest.raises(UsageError):
        run(doubling, [])


def test_a_fixed_shape_is_insisted_on(run, tmp_path):
    weights = {"two": np.array(2.0, np.float32)}
    node = helper.make_node("Mul", ["x", "two"], ["y/0:0"])
    dynamic = save(tmp_path / "d.onnx", [node], weights, shape=("batch", 4))
    assert run(dynamic, SAMPLES, input_shapes={"x": (1, 4)})[0]["y/0:0"].shape == (1, 4)
    with pytest.raises(ProductFailure, match="input_shapes"):
        run(dynamic, [{"x": np.zeros((2, 4))}], input_shapes={"x": (1, 4)})


def test_numbers_are_converted_to_the_models_types(run, doubling, tmp_path):
    assert run(doubling, [{"x": np.full((1, 4), 1.5)}])[0]["y/0:0"][0, 0] == 3.0
    node = helper.make_node("Cast", ["x"], ["y/0:0"], to=TensorProto.INT64)
    whole = save(tmp_path / "u.onnx", [node], {}, elem=TensorProto.UINT8, out=TensorProto.INT64)
    found = run(whole, [{"x": np.full((1, 4), 7.0)}], model_sha256="u")
    assert found[0]["y/0:0"].tolist() == [[7.0] * 4]
    for bad in (0.5, 300, -1):
        with pytest.raises(ProductFailure, match="does not fit"):
            run(whole, [{"x": np.full((1, 4), bad)}], model_sha256="u")


def test_quantized_models_are_computed_as_written(run, tmp_path):
    """Without optimizations, each Q/DQ pair rounds and saturates as its scale says."""
    weights = {"scale": np.array(0.5, np.float32), "zero": np.array(0, np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y/0:0"]),
    ]
    path = save(tmp_path / "qdq.onnx", nodes, weights)
    sample = {"x": np.array([[0.6, -3.0, 1000.0, 2.0]], np.float32)}
    found = run(path, [sample], optimize=False)[0]["y/0:0"]
    assert found.tolist() == [[0.5, 0.0, 127.5, 2.0]]


def test_a_quantized_product_is_computed_as_written(run, tmp_path):
    """Optimized, onnxruntime makes one integer product of it, which saturates on some CPUs: with
    AVX2 single values were off by more than 200 quantization steps.
    """
    rng = np.random.default_rng(0)
    weights = {
        "s": np.array(0.1, np.float32),
        "z": np.array(128, np.uint8),
        "w": rng.integers(-128, 127, (4, 4)).astype(np.int8),
        "ws": np.array(0.013, np.float32),
        "wz": np.array(0, np.int8),
        "os": np.array(0.0371, np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("MatMul", ["d", "wd"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "os", "z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "os", "z"], ["y/0:0"]),
    ]
    path = save(tmp_path / "product.onnx", nodes, weights, shape=(64, 4))
    x = rng.uniform(-13, 13, (64, 4)).astype(np.float32)
    found = run(path, [{"x": x}], optimize=False)[0]["y/0:0"]

    def through(values, scale):
        return (np.clip(np.round(values / scale) + 128, 0, 255) - 128) * scale

    product = through(x, np.float32(0.1)) @ (weights["w"] * np.float32(0.013))
    wanted = through(product, np.float32(0.0371))
    # One step is left for a product that falls on the edge between two.
    np.testing.assert_allclose(found, wanted, atol=0.0372)
    assert np.mean(found != wanted) < 0.05


def test_sample_hashes_tell_apart():
    base = [{"x": np.zeros((1, 4), np.float32)}]
    others = [
        [{"z": np.zeros((1, 4), np.float32)}],
        [{"x": np.zeros((4, 1), np.float32)}],
        [{"x": np.zeros((1, 4), np.int32)}],
        [{"x": np.ones((1, 4), np.float32)}],
        base * 2,
        [],
    ]
    hashes = {samples_sha256(samples) for samples in [base, *others]}
    assert len(hashes) == 7


def test_sample_hashes_do_not_depend_on_layout():
    array = np.arange(8, dtype=np.float32).reshape(2, 4)
    plain = samples_sha256([{"a": array, "b": array}])
    assert samples_sha256([{"b": array, "a": np.asfortranarray(array)}]) == plain
    assert samples_sha256([{"a": array.astype(">f4"), "b": array}]) == plain
