"""netrun as a drop-in for qnn-net-run, on Qualcomm's emulator, against ONNX Runtime's CPU."""

from __future__ import annotations

import json

import numpy as np
import pytest


def floats(path, like):
    return np.frombuffer(path.read_bytes(), np.float32).reshape(like.shape)


def as_real(net, codes):
    return {name: net.real(name, values) for name, values in codes.items()}


#: How far the NPU may be off, in steps of the output; its 16-bit convolution adds 1 to 3.
@pytest.mark.parametrize(("name", "steps"), [("u8", 1), ("u16", 3), ("real", 1), ("pick", 0)])
def test_float_files_give_what_the_cpu_gives(*, name, steps, net, netrun, write_list, tmp_path):
    it = net(name)
    listed = write_list([as_real(it, inputs) for inputs, _ in it.samples])
    done = netrun("--retrieve_context", it.binary, "--io", it.io, "--input_list", listed)
    assert done.code == 0, done.err
    for index, (_, outputs) in enumerate(it.samples):
        got = floats(tmp_path / f"output/Result_{index}/out.raw", outputs["out"])
        # A net with float I/O has the same quantum inside: 8/255.
        quantum = it.quantum("out") or 8 / 255
        assert np.abs(got - it.real("out", outputs["out"])).max() <= quantum * (steps + 0.01)
        assert np.ptp(got) > 10 * quantum


def test_a_float_model_for_v73(net, netrun, write_list, tmp_path):
    it = net("fp16")
    listed = write_list([inputs for inputs, _ in it.samples])
    done = netrun("--retrieve_context", it.binary, "--io", it.io, "--input_list", listed)
    assert done.code == 0, done.err
    for index, (_, outputs) in enumerate(it.samples):
        got = floats(tmp_path / f"output/Result_{index}/out.raw", outputs["out"])
        np.testing.assert_allclose(got, outputs["out"], atol=0.01)


@pytest.mark.parametrize("named", [True, False])
def test_native_files_in_any_form_of_list(named, net, netrun, write_list, tmp_path):
    it = net("pair")
    inputs, outputs = it.samples[0]
    if named:  # the order in the list does not matter where files are named
        inputs = dict(reversed(inputs.items()))
    listed = write_list([inputs], named=named)
    done = netrun(
        "--retrieve_context", it.binary, "--io", it.io, "--input_list", listed,
        "--use_native_input_files", "--use_native_output_files", "--output_dir", "deep/er",
    )  # fmt: skip
    assert done.code == 0, done.err
    result = tmp_path / "deep/er/Result_0"
    assert sorted(path.name for path in result.iterdir()) == [
        "head_diff_0_native.raw",
        "out_native.raw",
    ]
    for file, name in (("head_diff_0", "head/diff:0"), ("out", "out")):
        codes = np.frombuffer((result / f"{file}_native.raw").read_bytes(), np.uint8)
        assert np.abs(codes.astype(int) - outputs[name].ravel().astype(int)).max() <= 1


@pytest.mark.parametrize("head", ["%out", "#out"])
def test_the_first_line_names_the_outputs_to_keep(head, net, netrun, write_list, tmp_path):
    it = net("pair")
    listed = write_list([it.samples[0][0]], head=head)
    done = netrun(
        "--retrieve_context", it.binary, "--io", it.io, "--input_list", listed,
        "--use_native_input_files",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert [path.name for path in (tmp_path / "output/Result_0").iterdir()] == ["out.raw"]


def test_timings_profile_and_repeats(net, netrun, write_list, tmp_path):
    it = net("u8")
    listed = write_list([inputs for inputs, _ in it.samples])
    done = netrun(
        "--retrieve_context", it.binary, "--io", it.io, "--input_list", listed,
        "--use_native_input_files", "--num_inferences", 5, "--timings", "t.json", "--warm_load",
        "--profiling_level", "basic", "--perf_profile", "burst", "--backend", "libQnnHtp.so",
        "--log_level", "error",
    )  # fmt: skip
    assert done.code == 0, done.err
    times = json.loads((tmp_path / "t.json").read_text())
    assert len(times["inference_ms"]) == 5
    assert times["load_ms"] > 0
    assert times["warm_load_ms"] > 0
    assert times["emulated"] is True
    assert times["engine"].startswith("onnxruntime-qnn ")
    assert times["qnn_version"] in times["engine"]
    found = {path.name for path in (tmp_path / "output").iterdir()}
    assert {"Result_0", "Result_1", "qnn-profiling-data_0.csv"} <= found
    assert "Result_2" not in found
    assert "load binary" in (tmp_path / "output/qnn-profiling-data_0.csv").read_text()
    assert "[W:onnxruntime" not in done.err


def test_loading_alone(net, netrun, tmp_path):
    it = net("u8")
    done = netrun(
        "--retrieve_context", it.binary, "--io", it.io, "--load_only", "--timings", "t.json"
    )
    assert done.code == 0, done.err
    times = json.loads((tmp_path / "t.json").read_text())
    assert times["inference_ms"] == []
    assert times["warm_load_ms"] is None
    assert not list((tmp_path / "output").iterdir())


def test_one_graph_of_several_without_a_description(nets_dir, net, netrun, write_list, tmp_path):
    it, parted = net("u8"), nets_dir / "parted.bin"
    listed = write_list([it.samples[0][0]])
    args = ("--retrieve_context", parted, "--input_list", listed, "--use_native_input_files")
    done = netrun(*args)
    assert done.code == 2
    names = done.error.partition("2 graphs (")[2].partition(")")[0].split(", ")
    first = [name for name in names if netrun(*args, "--graph", name).code == 0]
    assert len(first) == 1  # the other one takes another input
    done = netrun(*args, "--graph", first[0])
    (result,) = (tmp_path / "output/Result_0").iterdir()
    # Between its parts the compiler keeps channels last.
    got = np.frombuffer(result.read_bytes(), np.float32).reshape(1, 8, 8, 4).transpose(0, 3, 1, 2)
    expected = it.real("out", it.samples[0][1]["out"])
    assert np.abs(got - expected).max() <= it.quantum("out") * 1.01
    assert netrun(*args, "--graph", "nothing").code == 2


def test_probe(netrun):
    done = netrun("--probe")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["emulated"] is True
    assert found["missing"] == []
    assert found["qnn_version"].count(".") == 3
    assert found["machine"]
