from __future__ import annotations

import numpy as np
import onnx
import pytest
from htp_compile import compile_for_v68, needs_compiler
from quantized_networks import Network, run_all, samples_for, wide_network

from pytest_qnnctx.build.quantize.calibrate import observe_ranges, quantize_with_calibration
from pytest_qnnctx.build.quantize.simplify import simplify
from pytest_qnnctx.errors import BuildFailed, InfrastructureError


@pytest.fixture
def network(tmp_path):
    model = wide_network()
    simplify(model, {})
    model.metadata_props.add(key="author", value="someone")
    path = tmp_path / "fp32.onnx"
    onnx.save(model, str(path))
    return path, model


def quantize(path, model, workdir, **more):
    workdir.mkdir(exist_ok=True)
    return quantize_with_calibration(
        path, samples_for(model, 8), workdir, name="net", progress=lambda line: None, **more
    )


@needs_compiler
@pytest.mark.parametrize("bits", [8, 16])
def test_it_quantizes_and_compiles(network, tmp_path, bits, capfd):
    path, model = network
    quantized = quantize(path, model, tmp_path / "work", activation_bits=bits)
    assert capfd.readouterr() == ("", "")
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["calibrated_qdq.onnx"]
    sample = samples_for(model, 1)[0]
    floats, ours = run_all(model, sample), run_all(onnx.load(str(quantized)), sample)
    for name in ("y", "soft"):
        error = np.abs(floats[name] - ours[name]).max()
        assert 0 < error < 0.15 * np.abs(floats[name]).max()
    assert compile_for_v68(quantized, tmp_path) == ""


def test_the_same_inputs_give_the_same_bytes(network, tmp_path):
    path, model = network
    first = quantize(path, model, tmp_path / "a").read_bytes()
    assert quantize(path, model, tmp_path / "b").read_bytes() == first


def test_ranges(network, tmp_path):
    path, model = network
    samples = samples_for(model, 3)
    ranges = observe_ranges(
        path, samples, ["x", "cat", "y"], tmp_path, name="net", progress=lambda line: None
    )
    values = [run_all(model, sample) for sample in samples]
    for name, (low, high) in ranges.items():
        assert low == pytest.approx(min(v[name].min() for v in values), rel=1e-5)
        assert high == pytest.approx(max(v[name].max() for v in values), rel=1e-5)
    assert set(ranges) == {"x", "cat", "y"}


def test_a_model_that_cannot_run_is_the_products_fault(tmp_path):
    net = Network()
    net.constant("target", np.array([1, 7]))
    net.add("Reshape", ["x", "target"], "y")
    model = net.model({"x": (1, 4)}, {"y": (1, 7)})
    path = tmp_path / "bad.onnx"
    onnx.save(model, str(path))
    with pytest.raises(BuildFailed, match="'bad' could not be quantized") as caught:
        quantize_with_calibration(
            path, samples_for(model), tmp_path, name="bad", progress=lambda line: None
        )
    assert caught.value.log


def test_the_time_limit_ends_it(network, tmp_path):
    path, model = network
    with pytest.raises(InfrastructureError, match="time limit"):
        quantize(path, model, tmp_path / "work", time_limit_s=0.05)
