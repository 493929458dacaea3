"""The runner ``netrun`` on the emulator, through a real session and transport."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError
from pytest_qnnctx.model import Artifact
from pytest_qnnctx.run.netrun_runner import NetrunRunner

LIMIT_S = 60.0
RUNNER = NetrunRunner()


def artifact_of(path):
    info = read_binary(path)
    return Artifact(path, info.sha256, info.size_bytes), info


@pytest.fixture
def u8(nets_dir):
    """Artifact, BinaryInfo, and two (codes in, codes out) of the net ``u8``."""
    with np.load(nets_dir / "u8.npz") as data:
        samples = [(data[f"in{index}_0"], data[f"out{index}_0"]) for index in range(2)]
    return *artifact_of(nets_dir / "u8.bin"), samples


def test_probe(sim):
    facts = RUNNER.probe(sim)
    assert facts.emulated
    assert (facts.htp_arch, facts.soc) == ("v68", "QCS6490")
    assert facts.qnn_version is not None
    assert facts.qnn_version in facts.engine


def test_real_values_and_codes_give_the_same(sim, u8):
    artifact, info, samples = u8
    (given,), (wanted,) = info.graphs[0].inputs, info.graphs[0].outputs
    codes = [{"image": inputs} for inputs, _ in samples]
    real = [
        {"image": ((inputs.astype(np.float64) + given.offset) * given.scale).astype(np.float32)}
        for inputs, _ in samples
    ]
    result = RUNNER.execute(sim, artifact, info, real + codes, timeout_s=LIMIT_S)
    assert len(result.outputs) == len(result.inference_ms) == 4
    for index, output in enumerate(result.outputs):
        assert output["out"].dtype == np.float32
        assert output["out"].shape == wanted.shape
        expected = (samples[index % 2][1].astype(float) + wanted.offset) * wanted.scale
        assert np.abs(output["out"] - expected).max() <= wanted.scale * 1.01
        assert (output["out"] == result.outputs[index % 2]["out"]).all()
    assert not (result.outputs[0]["out"] == result.outputs[1]["out"]).all()
    assert result.load_ms > 0
    assert result.emulated
    assert "QNN" in result.engine
    # Nothing of the data set stays on the board.
    assert list(Path(sim.workdir).iterdir()) == []


def test_two_inputs_and_two_outputs_by_name(sim, nets_dir):
    artifact, info = artifact_of(nets_dir / "pair.bin")
    with np.load(nets_dir / "pair.npz") as data:
        sample = {"right": data["in0_1"], "left": data["in0_0"]}
        expected = {"head/diff:0": data["out0_0"], "out": data["out0_1"]}
    result = RUNNER.execute(sim, artifact, info, [sample], timeout_s=LIMIT_S)
    for tensor in info.graphs[0].outputs:
        real = (expected[tensor.name].astype(float) + tensor.offset) * tensor.scale
        assert np.abs(result.outputs[0][tensor.name] - real).max() <= tensor.scale * 1.01


def test_repeats_go_round_the_samples(sim, u8):
    artifact, info, samples = u8
    given = [{"image": inputs} for inputs, _ in samples]
    result = RUNNER.execute(sim, artifact, info, given, repeats=3, timeout_s=LIMIT_S)
    assert len(result.outputs) == 2
    assert len(result.inference_ms) == 6
    with pytest.raises(UsageError):
        RUNNER.execute(sim, artifact, info, given, repeats=0, timeout_s=LIMIT_S)


def test_no_samples_only_load(sim, u8):
    artifact, info, _ = u8
    result = RUNNER.execute(sim, artifact, info, [], timeout_s=LIMIT_S)
    assert result.outputs == ()
    assert result.inference_ms == ()
    assert result.load_ms > 0


def test_a_data_set_costs_no_copy_a_sample(sim, u8):
    artifact, info, samples = u8
    given = [{"image": np.roll(samples[0][0], index)} for index in range(400)]
    started = time.monotonic()
    result = RUNNER.execute(sim, artifact, info, given, timeout_s=LIMIT_S)
    assert len(result.outputs) == 400
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ({"picture": np.zeros((1, 3, 8, 8), np.float32)}, "picture"),
        ({"image": np.zeros((3, 8, 8), np.float32)}, r"shape \[3, 8, 8\]"),
        ({"image": np.zeros((1, 3, 8, 8), np.int64)}, "int64"),
        ({"image": np.full((1, 3, 8, 8), np.nan, np.float32)}, "192 NaN"),
    ],
)
def test_samples_that_do_not_fit(sample, said, sim, u8):
    artifact, info, samples = u8
    given = [{"image": samples[0][0]}, sample]
    with pytest.raises(ProductFailure, match=rf"u8\.bin, sample 1: .*{said}"):
        RUNNER.execute(sim, artifact, info, given, timeout_s=LIMIT_S)


def test_a_truncated_binary_is_the_binarys_fault(sim, u8, tmp_path):
    _, info, _ = u8
    cut = tmp_path / "cut.bin"
    cut.write_bytes(u8[0].path.read_bytes()[:30_000])
    artifact = Artifact(cut, hashlib.sha256(cut.read_bytes()).hexdigest(), 30_000)
    with pytest.raises(ProductFailure, match=r"did not load cut\.bin.*damaged"):
        RUNNER.execute(sim, artifact, info, [], timeout_s=LIMIT_S)


def test_a_crash_of_the_runtime_is_told_and_survived(sim, nets_dir, u8):
    artifact, info = artifact_of(nets_dir / "shared.bin")
    with pytest.raises(ProductFailure, match=r"crashed on shared\.bin \(SIGSEGV\)") as caught:
        RUNNER.execute(sim, artifact, info, [], timeout_s=LIMIT_S)
    assert signal.Signals.SIGSEGV.name in str(caught.value)
    assert "The end of its log" in str(caught.value)
    artifact, info, _ = u8
    assert RUNNER.execute(sim, artifact, info, [], timeout_s=LIMIT_S).load_ms > 0


def test_the_graph_of_several_is_found_by_its_inputs(sim, nets_dir, u8):
    artifact, info = artifact_of(nets_dir / "parted.bin")
    assert len(info.graphs) == 2
    samples = u8[2]
    result = RUNNER.execute(sim, artifact, info, [{"image": samples[0][0]}], timeout_s=LIMIT_S)
    (output,) = result.outputs[0].values()
    assert output.shape == (1, 8, 8, 4)
    with pytest.raises(ProductFailure, match="2 graphs"):
        RUNNER.execute(sim, artifact, info, [{"other": samples[0][0]}], timeout_s=LIMIT_S)


def test_the_time_limit_is_nobodys_verdict(sim, u8):
    artifact, info, samples = u8
    given = [{"image": samples[0][0]}]
    with pytest.raises(InfrastructureError, match="time limit of"):
        RUNNER.execute(sim, artifact, info, given, repeats=10_000_000, timeout_s=3.0)
    with pytest.raises(InfrastructureError):
        RUNNER.execute(sim, artifact, info, given, timeout_s=0.001)


def test_a_board_without_the_interpreter(sim, u8):
    artifact, info, _ = u8
    sim.board = replace(sim.board, settings={"python": "/no/such/python3"})
    for call in (
        lambda: RUNNER.probe(sim),
        lambda: RUNNER.execute(sim, artifact, info, [], timeout_s=LIMIT_S),
    ):
        with pytest.raises(InfrastructureError, match="/no/such/python3") as caught:
            call()
        assert "onnxruntime-qnn" in caught.value.next_step


def python_wrapper(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_board_without_the_runtime(sim, u8, tmp_path):
    artifact, info, _ = u8
    bare = python_wrapper(tmp_path / "bare", f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    sim.board = replace(sim.board, settings={"python": bare})
    with pytest.raises(InfrastructureError, match=r"lacks .*onnxruntime_qnn"):
        RUNNER.probe(sim)
    with pytest.raises(InfrastructureError, match="install onnxruntime-qnn"):
        RUNNER.execute(sim, artifact, info, [], timeout_s=LIMIT_S)


def test_hardware_says_its_soc_itself(sim, tmp_path):
    answer = {
        "machine": "aarch64", "emulated": False, "qnn_version": "2.51.0.1", "engine": "e",
        "soc": "QCM6490", "missing": [],
    }  # fmt: skip
    for soc, arch in (("QCM6490", "v68"), ("SM8550", "v73"), ("UNHEARD-OF", None), (None, None)):
        printed = json.dumps({**answer, "soc": soc})
        fake = python_wrapper(tmp_path / "fake", f"#!/bin/sh\necho '{printed}'\n")
        sim.board = replace(sim.board, settings={"python": fake})
        facts = RUNNER.probe(sim)
        assert (facts.soc, facts.htp_arch, facts.emulated) == (soc, arch, False)


def test_a_board_that_answers_nonsense(sim, u8, tmp_path):
    artifact, info, _ = u8
    fake = python_wrapper(tmp_path / "fake", "#!/bin/sh\necho hello\n")
    sim.board = replace(sim.board, settings={"python": fake})
    with pytest.raises(InfrastructureError, match="hello"):
        RUNNER.probe(sim)
    with pytest.raises(InfrastructureError):
        RUNNER.execute(sim, artifact, info, [], timeout_s=LIMIT_S)
