"""The files of qnn-net-run, written and read back."""

from __future__ import annotations

import os
import shutil
import time

import numpy as np
import pytest

from pytest_qnnctx.binary.info import GraphInfo, TensorInfo
from pytest_qnnctx.errors import InfrastructureError, ProductFailure
from pytest_qnnctx.run.raw_tensors import read_outputs, write_inputs

GRAPH = GraphInfo(
    "g",
    (TensorInfo("image", "ufixed8", (2, 2), 0.5, -10), TensorInfo("rows", "int32", (3,))),
    (TensorInfo("head/y:0", "ufixed8", (2,), 0.5, -10), TensorInfo("z", "float32", (1, 2))),
)
SAMPLE = {
    "rows": np.array([1, 2, 3], np.int32),
    "image": np.array([[0, 0.5], [1, 1.5]], np.float32),
}


def test_inputs(tmp_path):
    codes = {**SAMPLE, "image": np.array([[10, 11], [12, 13]], np.uint8)}
    files = write_inputs(tmp_path / "in", GRAPH, [SAMPLE, codes], "/tmp/q")
    assert [path.name for path in files] == [
        "0_0.raw", "0_1.raw", "1_0.raw", "1_1.raw", "input_list.txt",
    ]  # fmt: skip
    assert files[-1].read_text() == (
        "image:=/tmp/q/0_0.raw rows:=/tmp/q/0_1.raw\nimage:=/tmp/q/1_0.raw rows:=/tmp/q/1_1.raw\n"
    )
    for path, expected in zip(files, [[0, 0.5, 1, 1.5], [1, 2, 3]] * 2, strict=False):
        assert np.frombuffer(path.read_bytes(), np.float32).tolist() == expected


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ({"image": SAMPLE["image"]}, "image, rows"),
        ({**SAMPLE, "image": np.full((2, 2), np.nan, np.float32)}, "4 NaN"),
        ({**SAMPLE, "rows": np.array([1, 2, 2**24 + 1], np.int32)}, "too large for float32"),
    ],
)
def test_inputs_that_do_not_fit(sample, said, tmp_path):
    with pytest.raises(ProductFailure, match=f"sample 0: .*{said}"):
        write_inputs(tmp_path, GRAPH, [sample], "/tmp/q")


def test_a_path_that_a_list_cannot_hold(tmp_path):
    with pytest.raises(ProductFailure, match="/tmp/my dir"):
        write_inputs(tmp_path, GRAPH, [SAMPLE], "/tmp/my dir")


@pytest.fixture
def results(tmp_path):
    for index in range(2):
        directory = tmp_path / f"out/Result_{index}"
        directory.mkdir(parents=True)
        (directory / "head_y_0.raw").write_bytes(np.array([index, 2], np.float32).tobytes())
        (directory / "z.raw").write_bytes(np.array([3, index], np.float32).tobytes())
    return tmp_path / "out"


def test_outputs(results):
    (results / "qnn-profiling-data_0.log").touch()
    first, second = read_outputs(results, GRAPH, 2, newer_than=time.time() - 60)
    assert first["head/y:0"].tolist() == [0, 2]
    assert second["z"].tolist() == [[3, 1]]


def test_native_outputs(results):
    shutil.rmtree(results / "Result_1")
    for path in (results / "Result_0").iterdir():
        path.unlink()
    (results / "Result_0/head_y_0_native.raw").write_bytes(bytes([10, 12]))
    (results / "Result_0/z_native.raw").write_bytes(np.array([3, 4], np.float32).tobytes())
    (only,) = read_outputs(results, GRAPH, 1, native=True)
    assert only["head/y:0"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out: shutil.rmtree(out / "Result_1"), "Result_1 are missing"),
        (lambda out: (out / "Result_2").mkdir(), "Result_2"),
        (lambda out: (out / "Result_1/z.raw").unlink(), "z.raw is missing"),
        (lambda out: (out / "Result_0/q.raw").touch(), "q.raw is no output"),
        (lambda out: (out / "Result_0/z.raw").write_bytes(bytes(4)), "4 bytes, expected 8"),
        (lambda out: os.utime(out / "Result_1/z.raw", (1, 1)), "z.raw was written before"),
    ],
)
def test_outputs_that_are_not_this_runs(change, said, results):
    change(results)
    with pytest.raises(InfrastructureError, match=said):
        read_outputs(results, GRAPH, 2, newer_than=time.time() - 60)


def test_outputs_that_share_a_file(results):
    graph = GraphInfo(
        "g", (), (TensorInfo("y/0", "float32", (2,)), TensorInfo("y:0", "float32", (2,)))
    )
    with pytest.raises(ProductFailure, match=r"y_0\.raw"):
        read_outputs(results, graph, 2)
