"""Toolchain ``ort`` on the real compiler: from each form of a model to an artifact."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from pytest_qnnctx.build.builder import build_artifact, build_from, read_sources
from pytest_qnnctx.build.ort_toolchain import OrtToolchain, _Announcer, qnn_build_id
from pytest_qnnctx.build.store import Store
from pytest_qnnctx.errors import BuildFailed, ProductFailure, UsageError
from pytest_qnnctx.model import Artifact, Model, Target

AIMET = Path(__file__).parent.parent / "data" / "aimet"
V68 = Target("QCS6490", "v68", 93, 2, has_float=False)


def build(
    model: Model, root: Path, target: Target = V68, said: list[str] | None = None
) -> Artifact:
    told = [] if said is None else said
    return build_artifact(model, target, OrtToolchain(), Store(root), progress=told.append)


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
def test_aimet_encodings_of_every_version_are_in_the_binary(tmp_path, version):
    artifact = build(
        Model(AIMET / "tiny.onnx", encodings=AIMET / f"tiny_{version}.encodings"), tmp_path
    )
    assert artifact.path.name == "tiny_w8a16_v68.bin"
    use = artifact.provenance.encodings
    assert use.version == version
    assert use.applied + len(use.unseen) == use.total > 0
    assert (use.differing, use.uncovered) == ((), ())
    assert artifact.provenance.float_ops == ()
    assert artifact.provenance.host_ops == ()


def test_aimets_own_qdq_export_is_compiled_as_it_is(tmp_path):
    artifact = build(Model(AIMET / "tiny_qdq_reference.onnx", name="tiny"), tmp_path)
    assert artifact.path.name == "tiny_w8a16_v68.bin"
    assert artifact.provenance.encodings.version == "QDQ"
    assert artifact.provenance.encodings.differing == ()
    assert artifact.quantized_model is not None


def test_calibration_inputs_alone_are_enough(tmp_path):
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(4)]
    artifact = build(Model(AIMET / "tiny.onnx", calibration=lambda: samples), tmp_path)
    assert artifact.path.name == "tiny_w8a8_v68.bin"
    assert artifact.provenance.float_ops == ()
    assert "calibration" in artifact.provenance.files
    other = [{"x": sample["x"] * 2} for sample in samples]
    again = build(Model(AIMET / "tiny.onnx", calibration=other), tmp_path)
    assert again.provenance.key != artifact.provenance.key


def test_a_float_model_is_refused_with_the_nodes_names(tmp_path):
    with pytest.raises(BuildFailed) as caught:
        build(Model(AIMET / "tiny.onnx"), tmp_path)
    assert {finding.kind for finding in caught.value.findings} == {"float_op"}
    assert any(finding.subject == "conv1 (Conv)" for finding in caught.value.findings)
    assert "3110" in caught.value.log
    assert list((tmp_path / "building").iterdir()) == []


def test_one_float_island_is_named_alone(tmp_path):
    model = onnx.load(AIMET / "tiny_qdq_reference.onnx")
    graph = model.graph
    conv = next(node for node in graph.node if node.op_type == "Conv")
    (pair_out,) = [n for n in graph.node if n.output[0] == conv.input[0]]
    (pair_in,) = [n for n in graph.node if n.output[0] == pair_out.input[0]]
    conv.input[0] = pair_in.input[0]
    graph.node.remove(pair_out)
    graph.node.remove(pair_in)
    onnx.save(model, tmp_path / "island.onnx")
    with pytest.raises(BuildFailed) as caught:
        build(Model(tmp_path / "island.onnx"), tmp_path)
    subjects = {finding.subject for finding in caught.value.findings if finding.kind == "float_op"}
    assert any(conv.name in subject for subject in subjects)
    assert not any("fc" in subject for subject in subjects)


def test_what_was_refused_is_not_tried_again(tmp_path):
    model, refused, store = Model(AIMET / "tiny.onnx"), {}, Store(tmp_path)

    def attempt() -> None:
        with pytest.raises(BuildFailed, match="tiny"):
            build_from(
                read_sources(model, V68),
                OrtToolchain(),
                store,
                progress=lambda line: None,
                refused=refused,
            )

    attempt()
    shutil.rmtree(tmp_path / "building")
    attempt()
    assert not (tmp_path / "building").exists()


def test_changed_weights_outside_the_onnx_change_the_key(tmp_path):
    for name in ("tiny.onnx", "aim_100.data", "tiny_1.0.0.encodings"):
        shutil.copy(AIMET / name, tmp_path)
    model = Model(tmp_path / "tiny.onnx", encodings=tmp_path / "tiny_1.0.0.encodings")
    first = build(model, tmp_path / "store")
    assert build(model, tmp_path / "store") == first
    data = tmp_path / "aim_100.data"
    content = bytearray(data.read_bytes())
    content[64:256] = bytes(192)
    data.write_bytes(content)
    second = build(model, tmp_path / "store")
    assert second.provenance.key != first.provenance.key
    assert second.sha256 != first.sha256


def test_what_changes_the_output_changes_the_key(tmp_path):
    model = Model(AIMET / "tiny.onnx", encodings=AIMET / "tiny_1.0.0.encodings")
    keys = {build(model, tmp_path).provenance.key}
    keys.add(build(replace(model, name="other"), tmp_path).provenance.key)
    keys.add(build(model, tmp_path, replace(V68, vtcm_mb=1)).provenance.key)
    other = replace(model, encodings=AIMET / "tiny_2.0.0.encodings")
    keys.add(build(other, tmp_path).provenance.key)
    assert len(keys) == 4


def test_two_processes_that_want_one_binary_compile_it_once(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nimport test_ort_toolchain as t\n"
        "model = t.Model(t.AIMET / 'tiny.onnx', encodings=t.AIMET / 'tiny_1.0.0.encodings')\n"
        "told = []\nmade = t.build(model, Path(sys.argv[2]), said=told)\n"
        "print(made.provenance.built_at, made.provenance.build_seconds, made.sha256)"
    )
    argv = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "store")]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {child.communicate(timeout=120)[0] for child in both}
    assert len(outputs) == 1
    assert len(list((tmp_path / "store" / "artifacts").iterdir())) == 1


def test_the_provenance_is_beside_the_binary(tmp_path):
    artifact = build(Model(AIMET / "tiny.onnx", encodings=AIMET / "tiny_1.0.0.encodings"), tmp_path)
    data = json.loads((artifact.path.parent / "provenance.json").read_text())
    assert set(data["files"]) == {"onnx", "external_data:aim_100.data", "encodings"}
    assert all(len(entry["sha256"]) == 64 for entry in data["files"].values())
    assert data["target"]["htp_arch"] == "v68"
    assert data["toolchain"]["qnn_version"] == qnn_build_id()
    assert data["toolchain"]["options"]["vtcm_mb"] == "2"
    assert data["commands"][0][:4] == ["python", "-P", "-m", "pytest_qnnctx.build.ort_compile"]
    assert data["sha256"] == artifact.sha256
    for what in ("built_at", "builder", "host", "quantization"):
        assert data[what]
    assert (artifact.path.parent / "build.log").exists()


def dynamic(folder: Path) -> Path:
    """A QDQ model whose input's batch is not fixed."""
    model = onnx.load(AIMET / "tiny_qdq_reference.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, folder / "dynamic.onnx")
    return folder / "dynamic.onnx"


def test_a_dynamic_shape_is_named_with_the_remedy(tmp_path):
    with pytest.raises(ProductFailure, match=r"x.*batch") as caught:
        build(Model(dynamic(tmp_path)), tmp_path)
    assert "input_shapes" in str(caught.value)


def test_a_fixed_shape_is_accepted(tmp_path):
    fixed = Model(dynamic(tmp_path), input_shapes={"x": (1, 3, 32, 32)})
    assert build(fixed, tmp_path).path.exists()
    with pytest.raises((UsageError, ProductFailure), match="image"):
        build(Model(dynamic(tmp_path), input_shapes={"image": (1, 3, 32, 32)}), tmp_path)


def test_the_same_input_gives_the_same_bytes(tmp_path):
    model = Model(AIMET / "tiny.onnx", encodings=AIMET / "tiny_1.0.0.encodings")
    assert build(model, tmp_path / "a").sha256 == build(model, tmp_path / "b").sha256


def test_an_unknown_soc_is_not_guessed_at(tmp_path):
    with pytest.raises(UsageError, match="model number of SoC QCS9999"):
        build(Model(AIMET / "tiny.onnx"), tmp_path, Target("QCS9999", "v68"))


@pytest.mark.parametrize("content", [b"", b"not an onnx file at all", b"\x08\x01"])
def test_what_is_no_model(tmp_path, content):
    (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises((ProductFailure, UsageError), match=r"bad\.onnx"):
        build(Model(tmp_path / "bad.onnx"), tmp_path)


def test_a_long_build_says_that_it_still_runs():
    told: list[str] = []
    announce = _Announcer(told.append, "compiling net")
    for seconds in (1.0, 4.9, 5.1, 6.0, 10.2, 11.0, 40.0):
        announce(seconds)
    assert told == ["compiling net: 5 s", "compiling net: 10 s", "compiling net: 40 s"]
