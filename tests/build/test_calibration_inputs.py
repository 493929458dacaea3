from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_qnnctx.build.quantize.calibration_inputs import (
    calibration_sha256,
    listed_files,
    load_calibration,
    materialise,
)
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Model

F32 = np.dtype(np.float32)
INPUTS = {"x": (F32, (1, 3)), "n": (np.dtype(np.int64), (2,))}
ONE = {"x": (F32, (1, 3))}


def sample(value=1.0):
    return {"x": np.full((1, 3), value, np.float32), "n": np.array([1, 2])}


# --- npz --------------------------------------------------------------------------------------


def test_npz(tmp_path):
    path = tmp_path / "c.npz"
    np.savez(path, x=np.arange(6, dtype=np.float32).reshape(2, 1, 3), n=np.arange(4).reshape(2, 2))
    samples = load_calibration(path, INPUTS)
    assert len(samples) == 2
    assert samples[1]["x"].tolist() == [[3, 4, 5]]
    assert samples[1]["n"].tolist() == [2, 3]


def test_npz_whose_batch_axis_stands_for_the_samples(tmp_path):
    path = tmp_path / "c.npz"
    np.savez(path, x=np.zeros((5, 3), np.float32))
    samples = load_calibration(path, ONE)
    assert [s["x"].shape for s in samples] == [(1, 3)] * 5


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((2, 1, 3), np.float32)}, "no array for input 'n'"),
        ({"x": np.zeros((2, 1, 3), np.float32), "n": np.zeros((3, 2), int)}, "x 2, n 3"),
        ({"x": np.zeros((2, 1, 4), np.float32), "n": np.zeros((2, 2), int)}, "shape .2, 1, 4."),
        ({"y": np.zeros((2, 1, 3)), "x": np.zeros(1), "n": np.zeros(1)}, "'y', which is no input"),
        ({"x": np.zeros((0, 1, 3), np.float32), "n": np.zeros((0, 2), int)}, "no samples"),
        ({"x": np.array([{}], object), "n": np.zeros((1, 2), int)}, "plain arrays"),
        ({"x": np.full((2, 1, 3), np.nan, np.float32), "n": np.zeros((2, 2), int)}, "NaN"),
        ({"x": np.zeros((2, 1, 3), np.uint8), "n": np.zeros((2, 2), int)}, "is uint8"),
        ({"x": np.zeros((2, 1, 3), np.float32), "n": np.zeros((2, 2))}, "is float64"),
    ],
)
def test_npz_that_does_not_fit(tmp_path, arrays, said):
    path = tmp_path / "c.npz"
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match=said):
        load_calibration(path, INPUTS)


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 junk", b"\x93NUMPY"])
def test_npz_that_is_none(tmp_path, content):
    path = tmp_path / "c.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"not a \.npz file"):
        load_calibration(path, ONE)


@pytest.mark.parametrize("name", ["absent.npz", "absent.txt", "absent.csv"])
def test_absent_or_unknown_files(tmp_path, name):
    with pytest.raises(UsageError, match="absent"):
        load_calibration(tmp_path / name, ONE)


# --- input lists ------------------------------------------------------------------------------


def write_list(tmp_path: Path, text: str) -> Path:
    (tmp_path / "raw").mkdir(exist_ok=True)
    for index in range(2):
        np.full(3, index + 0.5, "<f4").tofile(tmp_path / "raw" / f"x{index}.raw")
        np.array([index, 7], "<f4").tofile(tmp_path / "raw" / f"n{index}.raw")
    path = tmp_path / "list.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "x:=raw/x0.raw n:=raw/n0.raw\nx:=raw/x1.raw n:=raw/n1.raw\n",
        "n:=raw/n0.raw  x:=raw/x0.raw\n\nn:=raw/n1.raw x:=raw/x1.raw",
        "raw/x0.raw raw/n0.raw\nraw/x1.raw raw/n1.raw\n",
        "#y\nraw/x0.raw raw/n0.raw\nraw/x1.raw raw/n1.raw\n",
        "% y z\r\nraw/x0.raw raw/n0.raw\r\nraw/x1.raw raw/n1.raw\r\n",
    ],
)
def test_input_lists(tmp_path, text):
    path = write_list(tmp_path, text)
    samples = load_calibration(path, INPUTS)
    assert [s["x"].tolist() for s in samples] == [[[0.5] * 3], [[1.5] * 3]]
    assert [s["n"].tolist() for s in samples] == [[0, 7], [1, 7]]
    assert samples[0]["n"].dtype == np.int64
    assert {f.name for f in listed_files(path)} == {"x0.raw", "x1.raw", "n0.raw", "n1.raw"}


def test_absolute_paths(tmp_path):
    path = write_list(tmp_path, f"x:={tmp_path}/raw/x0.raw")
    assert len(load_calibration(path, ONE)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x:=raw/gone.raw", "line 1 of .* no such file"),
        ("x:=raw/n0.raw", "8 bytes; input 'x'"),
        ("x:=raw/x0.raw", "no array for input 'n'"),
        ("x:=raw/x0.raw z:=raw/n0.raw", "'z', which is no input"),
        ("raw/x0.raw raw/n0.raw raw/n1.raw", "3 files; the model has 2 inputs"),
        ("", "no samples"),
        ("#only\n", "no samples"),
    ],
)
def test_input_lists_that_do_not_fit(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        load_calibration(write_list(tmp_path, text), INPUTS)


def test_fractions_for_an_integer_input(tmp_path):
    path = write_list(tmp_path, "raw/x0.raw raw/n0.raw")
    np.array([0.5, 1], "<f4").tofile(tmp_path / "raw" / "n0.raw")
    with pytest.raises(UsageError, match="not whole"):
        load_calibration(path, INPUTS)


def test_a_list_that_is_not_text(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        load_calibration(path, ONE)


# --- iterables --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda: [sample(1), sample(2)],
        lambda: (sample(1), sample(2)),
        lambda: iter([sample(1), sample(2)]),
        lambda: lambda: [sample(1), sample(2)],
        lambda: lambda: (sample(value) for value in (1, 2)),
    ],
    ids=["list", "tuple", "iterator", "function", "generator function"],
)
def test_iterables(form):
    model = materialise(Model(Path("m.onnx"), calibration=form()))
    for _ in range(2):  # a one-shot iterator is not used up
        samples = load_calibration(model.calibration, INPUTS)
        assert [s["x"][0, 0] for s in samples] == [1, 2]
    assert calibration_sha256(model.calibration) == calibration_sha256([sample(1), sample(2)])


def test_materialised_arrays_are_copies():
    array = np.zeros((1, 3), np.float32)
    model = materialise(Model(Path("m.onnx"), calibration=[{"x": array}]))
    array[:] = 9
    assert model.calibration[0]["x"].max() == 0


def test_an_iterator_is_read_once():
    reads = []

    def samples():
        for value in (1, 2):
            reads.append(value)
            yield sample(value)

    model = materialise(Model(Path("m.onnx"), calibration=samples()))
    assert materialise(model).calibration is not None
    load_calibration(model.calibration, INPUTS)
    calibration_sha256(model.calibration)
    assert reads == [1, 2]


def test_files_stay_files(tmp_path):
    path = tmp_path / "c.npz"
    assert materialise(Model(Path("m.onnx"), calibration=path)).calibration == path
    assert materialise(Model(Path("m.onnx"), calibration=lambda: path)).calibration == path
    assert materialise(Model(Path("m.onnx"), calibration=str(path))).calibration == path
    assert materialise(Model(Path("m.onnx"))).calibration is None


@pytest.mark.parametrize("value", [[], list, 7, {"x": np.zeros(3)}, [np.zeros(3)], [None]])
def test_what_is_no_calibration(value):
    with pytest.raises(UsageError, match="calibration"):
        materialise(Model(Path("m.onnx"), calibration=value))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": np.zeros((1, 4), np.float32)}, "shape .1, 4., the model needs .1, 3."),
        ({"x": np.zeros((1, 3), int)}, "is int64, the model needs a float type"),
        ({"x": np.full((1, 3), np.inf, np.float32)}, "NaN or infinity"),
        ({"x": np.full((1, 3), 1e300)}, "do not fit float32"),
        ({"z": np.zeros(1)}, "'z', which is no input"),
        ({"x": "text"}, "shape"),
    ],
)
def test_samples_that_do_not_fit(change, said):
    with pytest.raises(UsageError, match=said) as caught:
        load_calibration([sample(), {**sample(), **change}], INPUTS)
    assert "sample 1" in str(caught.value)


# --- hash -------------------------------------------------------------------------------------


def test_the_hash_of_a_list_covers_its_raw_files(tmp_path):
    path = write_list(tmp_path, "raw/x0.raw raw/n0.raw")
    before = calibration_sha256(path)
    assert calibration_sha256(path) == before
    np.full(3, 9, "<f4").tofile(tmp_path / "raw" / "x0.raw")
    after = calibration_sha256(path)
    assert after != before
    path.write_text("raw/x1.raw raw/n0.raw")
    assert calibration_sha256(path) not in (before, after)


def test_the_hash_of_arrays_covers_name_type_shape_and_order():
    base = [{"x": np.zeros((2, 2), np.float32)}, {"x": np.ones((2, 2), np.float32)}]
    others = [
        base[::-1],
        base[:1],
        [{"z": s["x"]} for s in base],
        [{"x": s["x"].reshape(4)} for s in base],
        [{"x": s["x"].astype(np.float64)} for s in base],
    ]
    hashes = {calibration_sha256(form) for form in [base, *others]}
    assert len(hashes) == 6
    assert calibration_sha256([{"x": np.asfortranarray(s["x"])} for s in base]) in hashes


def test_an_unread_iterator_is_not_hashed():
    with pytest.raises(UsageError):
        calibration_sha256(iter([sample()]))
