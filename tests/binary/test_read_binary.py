"""Reading real context binaries: every field, against a source that is not our reader."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from pytest_qnnctx.binary.info import BinaryInfo, TensorInfo
from pytest_qnnctx.binary.reader import read_binary


def ep_context(binary: Path) -> onnx.ModelProto:
    """The model that ONNX Runtime wrote beside the binary."""
    return onnx.load(binary.with_name(binary.name.replace("_qnn.bin", ".onnx")))


def compatibility(binary: Path) -> list[str]:
    """ONNX Runtime's own record of the build: version, backend, QNN, API, arch, SoC model ..."""
    props = {prop.key: prop.value for prop in ep_context(binary).metadata_props}
    return props["ep_compatibility_info.QNNExecutionProvider"].split(":")


@pytest.mark.parametrize(
    ("name", "arch", "soc", "vtcm_mb"),
    [("v68", "v68", "QCS6490", 2), ("v73", "v73", "SM8550", 8), ("vtcm4", "v68", "QCS6490", 4)],
)
def test_the_target_is_the_one_it_was_compiled_for(contexts, name, arch, soc, vtcm_mb):
    info = read_binary(contexts[name])
    assert (info.htp_arch, info.soc) == (arch, soc)
    assert info.compiled_vtcm_bytes == vtcm_mb * 2**20
    assert info.htp_arch == f"v{compatibility(contexts[name])[4]}"
    assert info.unknown == {}


def test_the_qnn_version_is_the_compilers(contexts):
    (node,) = [n for n in ep_context(contexts["v68"]).graph.node if n.op_type == "EPContext"]
    wrote = next(a.s.decode() for a in node.attribute if a.name == "ep_sdk_version")
    info = read_binary(contexts["v68"])
    assert f"v{info.qnn_version}" == wrote
    assert info.qnn_version.startswith(compatibility(contexts["v68"])[2] + ".")


def test_quantized_inputs_and_outputs(contexts):
    (graph,) = read_binary(contexts["v68"]).graphs
    shape = (1, 4, 8, 6)
    assert graph.inputs == (
        TensorInfo("a", "ufixed8", shape, float(np.float32(0.05)), -128),
        TensorInfo("b", "ufixed8", shape, float(np.float32(0.025)), -100),
    )
    (output,) = graph.outputs
    assert (output.dtype, output.shape) == ("ufixed8", shape)
    assert (output.scale, output.offset) == (float(np.float32(0.2)), -7)


def test_float_inputs_and_outputs_have_no_scale(contexts):
    (graph,) = read_binary(contexts["v73"]).graphs
    shape = (1, 4, 8, 6)
    assert graph.inputs == (TensorInfo("a", "float32", shape), TensorInfo("b", "float32", shape))
    assert graph.outputs == (TensorInfo("y", "float32", shape),)


def test_every_graph_of_a_context_is_read(contexts):
    nodes = [n for n in ep_context(contexts["two"]).graph.node if n.op_type == "EPContext"]
    wrote = [
        next(a.s.decode() for a in node.attribute if a.name == "partition_name") for node in nodes
    ]
    info = read_binary(contexts["two"])
    assert [graph.name for graph in info.graphs] == wrote
    assert [[tensor.name for tensor in graph.inputs] for graph in info.graphs] == [
        ["a", "b"],
        [nodes[1].input[0]],
    ]
    assert [graph.outputs[0].name for graph in info.graphs] == [node.output[0] for node in nodes]
    assert info.htp_arch == "v68"


def test_the_graphs_numbers_are_what_the_build_asked_for(contexts):
    (asked,) = read_binary(contexts["vtcm4"]).graphs
    (default,) = read_binary(contexts["v68"]).graphs
    assert (asked.optimization_level, default.optimization_level) == (1, 3)
    assert asked.vtcm_bytes == 4 * 2**20
    assert asked.spill_fill_bytes == default.spill_fill_bytes == 0


def test_the_hash_and_the_size_are_the_files(contexts):
    data = contexts["v68"].read_bytes()
    info = read_binary(contexts["v68"])
    assert (info.sha256, info.size_bytes) == (hashlib.sha256(data).hexdigest(), len(data))


def test_json_is_strict_and_has_the_documented_keys(contexts):
    info = read_binary(contexts["two"])
    values = info.to_json()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert set(values) == {
        "htp_arch", "soc", "qnn_version", "sha256", "size_bytes", "graphs",
        "compiled_vtcm_bytes", "info_version", "unknown",
    }  # fmt: skip
    graph = values["graphs"][0]
    assert set(graph) == {
        "name", "inputs", "outputs", "spill_fill_bytes", "vtcm_bytes",
        "optimization_level", "hvx_threads",
    }  # fmt: skip
    assert set(graph["inputs"][0]) == {"name", "dtype", "shape", "scale", "offset"}
    assert graph["inputs"][0]["shape"] == [1, 4, 8, 6]


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("name", ["v68", "v73"])
def test_without_a_library_the_target_is_known_and_the_rest_says_why_not(contexts, name):
    info = read_binary(contexts[name])
    assert info.htp_arch == name
    assert info.soc in ("QCS6490", "SM8550")
    assert info.compiled_vtcm_bytes in (2 * 2**20, 8 * 2**20)
    assert info.qnn_version is not None
    assert info.qnn_version.startswith(compatibility(contexts[name])[2] + ".")
    assert (info.graphs, info.info_version) == ((), None)
    assert set(info.unknown) == {"graphs", "info_version"}
    assert "libQnnSystem.so" in info.unknown["graphs"]


def test_a_child_finds_the_package_from_any_directory(contexts, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('not the real json')")
    monkeypatch.chdir(tmp_path)
    assert isinstance(read_binary(contexts["v68"]), BinaryInfo)
