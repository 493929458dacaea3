"""The examples that a new user copies: their files fit together and say what they claim."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "conftest_examples"
QUICKSTART = EXAMPLES / "quickstart"
OCR = EXAMPLES / "ocr"
INHERITS = {"MaxPool", "Flatten"}


def read_encodings(folder: Path) -> dict[str, dict[str, dict]]:
    found = json.loads((folder / "digits.encodings").read_text())
    assert found["version"] == "1.0.0"
    return {
        kind: {record["name"]: record for record in found[kind]}
        for kind in ("activation_encodings", "param_encodings")
    }


def top1(folder: Path) -> float:
    with np.load(QUICKSTART / "digits_heldout.npz") as held_out:
        images, labels = held_out["images"], held_out["labels"]
    session = ort.InferenceSession(folder / "digits.onnx", providers=["CPUExecutionProvider"])
    feeds = ({"image": image[None, None].astype(np.float32) / 16} for image in images)
    hits = [session.run(None, feed)[0].argmax() for feed in feeds] == labels
    return float(np.mean(hits))


def check_encodings_cover(folder: Path) -> None:
    """Every tensor that the HTP computes on has an encoding, inherits one, or is a bias."""
    graph = onnx.load(folder / "digits.onnx").graph
    encodings = read_encodings(folder)
    weights = {t.name: tuple(t.dims) for t in graph.initializer if len(t.dims) > 1}
    assert set(encodings["param_encodings"]) == set(weights)
    for name, shape in weights.items():
        record = encodings["param_encodings"][name]
        assert len(record["scale"]) == len(record["offset"]) == shape[0]
        assert all(scale > 0 for scale in record["scale"])

    covered = set(encodings["activation_encodings"])
    assert covered <= {name for node in graph.node for name in (*node.input, *node.output)}
    assert {graph.input[0].name, graph.output[0].name} <= covered
    fused = {node.input[0] for node in graph.node if node.op_type == "Relu"}
    for node in graph.node:
        if node.op_type in INHERITS:
            assert node.input[0] in covered
            covered.add(node.output[0])
        elif node.output[0] not in fused:
            assert node.output[0] in covered, node.name


def test_the_quickstart_is_small():
    assert (QUICKSTART / "digits.onnx").stat().st_size < 200_000
    assert (QUICKSTART / "digits_heldout.npz").stat().st_size < 60_000


def test_the_model_has_the_interface_that_the_readme_states():
    model = onnx.load(QUICKSTART / "digits.onnx")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (image,), (logits,) = session.get_inputs(), session.get_outputs()
    assert (image.name, image.shape, image.type) == ("image", [1, 1, 8, 8], "tensor(float)")
    assert (logits.name, logits.shape) == ("logits", [1, 10])
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]


def test_the_encodings_cover_the_graph():
    check_encodings_cover(QUICKSTART)


def test_the_committed_model_reads_the_held_out_images():
    assert top1(QUICKSTART) >= 0.97


def test_the_held_out_images_are_forty_of_each_digit():
    with np.load(QUICKSTART / "digits_heldout.npz") as held_out:
        assert held_out["images"].shape == (400, 8, 8)
        assert held_out["images"].max() == 16
        assert np.bincount(held_out["labels"]).tolist() == [40] * 10


def test_the_dataset_gives_what_the_model_takes(monkeypatch):
    monkeypatch.syspath_prepend(str(QUICKSTART))
    from digits_data import dataset

    pairs = dataset()
    inputs, target = pairs[0]
    assert len(pairs) == 400
    assert list(inputs) == ["image"]
    assert (inputs["image"].shape, inputs["image"].dtype) == ((1, 1, 8, 8), np.float32)
    assert isinstance(target, int)
    assert max(float(pair[0]["image"].max()) for pair in pairs) == 1


def test_the_training_script_makes_such_files(tmp_path):
    """Three epochs: the same held-out images, a model that learns, encodings that cover it."""
    pytest.importorskip("sklearn")
    script = [sys.executable, str(QUICKSTART / "train_digits.py"), "--epochs", "3"]
    subprocess.run([*script, "--output", str(tmp_path)], check=True, timeout=120)
    with (
        np.load(tmp_path / "digits_heldout.npz") as made,
        np.load(QUICKSTART / "digits_heldout.npz") as committed,
    ):
        assert np.array_equal(made["images"], committed["images"])
        assert np.array_equal(made["labels"], committed["labels"])
    check_encodings_cover(tmp_path)
    assert top1(tmp_path) > 0.9


class TestOcr:
    @pytest.fixture(autouse=True)
    def _importable(self, monkeypatch):
        pytest.importorskip("PIL")
        monkeypatch.syspath_prepend(str(OCR))

    @pytest.mark.parametrize("width", [160, 320])
    def test_lines_have_the_shape_and_range_of_the_network(self, width):
        from lines import calibration_lines, held_out_lines

        for sample in [*calibration_lines(width), *(s for s, _ in held_out_lines(width))]:
            assert (sample["x"].shape, sample["x"].dtype) == ((1, 3, 48, width), np.float32)
            assert -1 <= sample["x"].min() < sample["x"].max() <= 1

    def test_no_text_is_used_for_both_calibration_and_judgement(self):
        from lines import CALIBRATION_LINES, TEST_LINES, TEST_WORDS

        calibrated = {*CALIBRATION_LINES, *(w for text in CALIBRATION_LINES for w in text.split())}
        assert not calibrated & {*TEST_LINES, *TEST_WORDS}

    def test_edit_distance(self):
        from lines import edit_distance

        assert edit_distance("glass", "glass") == 0
        assert edit_distance("", "abc") == 3
        assert edit_distance("kitten", "sitting") == 3

    def test_fp32_reads_every_line_and_noise_reads_none(self):
        pytest.importorskip("rapidocr_onnxruntime")
        from lines import RECOGNITION, character_accuracy, held_out_lines, model_path

        session = ort.InferenceSession(model_path(RECOGNITION), providers=["CPUExecutionProvider"])
        samples, texts = zip(*held_out_lines(160), strict=True)
        outputs = [{"y": session.run(None, sample)[0]} for sample in samples]
        assert character_accuracy(outputs, texts) == 1
        assert character_accuracy(outputs[::-1], texts) < 0.5
        outputs[0] = {"y": np.full_like(outputs[0]["y"], np.nan)}
        assert np.isnan(character_accuracy(outputs, texts))

    def test_fp32_finds_every_line_of_a_page(self):
        pytest.importorskip("rapidocr_onnxruntime")
        from lines import model_path
        from pages import DETECTION, held_out_pages, line_f1

        session = ort.InferenceSession(model_path(DETECTION), providers=["CPUExecutionProvider"])
        samples, boxes = zip(*held_out_pages(), strict=True)
        outputs = [{"y": session.run(None, sample)[0]} for sample in samples]
        assert line_f1(outputs, boxes) == 1
        assert line_f1([{"y": np.zeros_like(o["y"])} for o in outputs], boxes) == 0
        assert line_f1([{"y": np.ones_like(o["y"])} for o in outputs], boxes) == 0
        assert np.isnan(line_f1([{"y": o["y"] * np.nan} for o in outputs], boxes))

    def test_regions_that_touch_at_a_side_are_one(self):
        from pages import connected

        mask = np.array([[1, 1, 0, 1], [0, 1, 0, 1], [1, 0, 0, 0]], dtype=bool)
        assert len(set(connected(mask)[mask])) == 3
