from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from htp_compile import V68, V73
from quantized_networks import Network, derive_encodings, wide_network

from pytest_qnnctx.build.onnx_file import load_model
from pytest_qnnctx.build.quantize.coverage import Coverage, check_coverage, require_coverage
from pytest_qnnctx.build.quantize.encoding_sources import closest
from pytest_qnnctx.build.quantize.encodings import VERSIONS, parse_encodings
from pytest_qnnctx.build.quantize.graph import view
from pytest_qnnctx.build.quantize.simplify import simplify
from pytest_qnnctx.errors import ProductFailure

AIMET = Path(__file__).parent.parent / "data" / "aimet"


def cover(model, data, tmp_path, target=V68) -> Coverage:
    path = tmp_path / "some.encodings"
    path.write_text(json.dumps(data))
    file = parse_encodings(path)
    model = copy.deepcopy(model)
    simplified = simplify(model, file.entries)
    file = replace(file, entries=simplified.entries)
    return check_coverage(view(model), file, target, gone=simplified.gone)


def tiny(version="1.0.0"):
    return load_model(AIMET / "tiny.onnx"), json.loads(
        (AIMET / f"tiny_{version}.encodings").read_text()
    )


def kinds(coverage):
    return [(finding.kind, finding.subject) for finding in coverage.findings]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_pair_is_covered(tmp_path, version):
    coverage = cover(*tiny(version), tmp_path)
    assert coverage.findings == ()
    assert len(coverage.matched) == coverage.total
    assert coverage.fused == ("c",), "the convolution's output before its Relu"
    assert [bias.name for bias in coverage.derived] == ["B"]
    assert coverage.inherited == (() if version == "2.0.0" else ("f",))
    assert coverage.uncovered == coverage.unmatched == ()


def test_a_renamed_tensor_is_named_with_the_closest_one(tmp_path):
    model, data = tiny()
    for node in model.graph.node:
        node.input[:] = ["r_out" if name == "r" else name for name in node.input]
        node.output[:] = ["r_out" if name == "r" else name for name in node.output]
    coverage = cover(model, data, tmp_path)
    assert kinds(coverage) == [("encoding_unmatched", "r"), ("tensor_uncovered", "r_out")]
    assert coverage.unmatched == ("r",)
    assert coverage.uncovered == (
        "c",
        "r_out",
    ), "c, fused into r_out, is not a cause of its own"
    assert "closest tensor is 'r_out'" in coverage.findings[0].message
    assert "made by Relu 'relu1'" in coverage.findings[1].message


def test_a_missing_encoding_is_a_float_island_without_float(tmp_path):
    model, data = tiny()
    data["activation_encodings"] = [e for e in data["activation_encodings"] if e["name"] != "g"]
    coverage = cover(model, data, tmp_path)
    assert kinds(coverage) == [("tensor_uncovered", "g")]
    assert coverage.uncovered == ("g", "f"), "f is g, flattened"
    assert "QCS6490 / HTP v68 has no float" in coverage.findings[0].message


def test_a_missing_weight_encoding(tmp_path):
    model, data = tiny()
    data["param_encodings"].pop()
    assert kinds(cover(model, data, tmp_path)) == [("tensor_uncovered", "W2")]


def test_with_float_an_uncovered_tensor_is_listed_and_no_failure(tmp_path):
    model, data = tiny()
    data["activation_encodings"] = [e for e in data["activation_encodings"] if e["name"] != "g"]
    coverage = cover(model, data, tmp_path, V73)
    assert coverage.findings == ()
    assert coverage.uncovered == ("g", "f")


def test_unknown_float_support_counts_as_none(tmp_path):
    model, data = tiny()
    data["activation_encodings"].pop()
    coverage = cover(model, data, tmp_path, replace(V68, has_float=None))
    assert kinds(coverage) == [("tensor_uncovered", "y")]
    assert "unknown" in coverage.findings[0].message


def test_an_extra_encoding_fails_on_every_target(tmp_path):
    model, data = tiny()
    data["activation_encodings"].append({**data["activation_encodings"][0], "name": "ghost"})
    for target in (V68, V73):
        assert kinds(cover(model, data, tmp_path, target)) == [("encoding_unmatched", "ghost")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_channel_count(tmp_path, version):
    model, data = tiny(version)
    if version == "0.6.1":
        del data["param_encodings"]["W"][3:]
    elif version == "1.0.0":
        for key in ("scale", "offset"):
            del data["param_encodings"][0][key][3:]
    else:
        del data["encodings"][0]["y_scale"][3:]
    coverage = cover(model, data, tmp_path)
    assert kinds(coverage) == [("encoding_channels", "W")]
    assert "3 scales" in coverage.findings[0].message
    assert "16 channels" in coverage.findings[0].message


def test_channels_on_the_wrong_axis(tmp_path):
    model, data = tiny("2.0.0")
    data["encodings"][0]["axis"] = 1
    assert kinds(cover(model, data, tmp_path)) == [("encoding_channels", "W")]


def test_an_activation_with_channels(tmp_path):
    model, data = tiny()
    data["activation_encodings"][0].update(enc_type="PER_CHANNEL", scale=[0.1] * 3, offset=[0] * 3)
    assert kinds(cover(model, data, tmp_path)) == [("encoding_channels", "x")]


@pytest.mark.parametrize(
    ("tensor", "bits", "target", "fails"),
    [
        ("x", 4, V68, True),
        ("x", 12, V68, True),
        ("x", 32, V68, True),
        ("x", 8, V68, False),
        ("W", 16, V68, True),
        ("W", 16, V73, False),
        ("W", 5, V68, True),
        ("W", 4, V68, False),
    ],
)
def test_widths(tmp_path, tensor, bits, target, fails):
    model, data = tiny()
    for entry in data["activation_encodings"] + data["param_encodings"]:
        if entry["name"] == tensor:
            offset = -(2 ** (bits - 1)) if tensor == "W" else 0
            entry.update(bw=bits, offset=[offset] * len(entry["offset"]))
    expected = [("encoding_bitwidth", tensor)] if fails else []
    assert kinds(cover(model, data, tmp_path, target)) == expected


def test_wide_weights_need_wide_activations(tmp_path):
    model = wide_network()
    data = derive_encodings(model, activation_bits=8, param_bits=16)
    coverage = cover(model, data, tmp_path, V73)
    assert {kind for kind, _ in kinds(coverage)} == {"encoding_bitwidth"}


def test_four_bit_weights_are_per_channel(tmp_path):
    model, data = tiny()
    entry = data["param_encodings"][0]
    entry.update(bw=4, enc_type="PER_TENSOR", scale=[0.1], offset=[-8])
    assert kinds(cover(model, data, tmp_path)) == [("encoding_bitwidth", "W")]


def test_per_channel_weights_are_symmetric(tmp_path):
    model, data = tiny()
    data["param_encodings"][0].update(is_sym=False, offset=[-100] * 16)
    assert kinds(cover(model, data, tmp_path)) == [("encoding_unsupported", "W")]


def test_blockwise_weights_are_refused(tmp_path):
    model, data = tiny()
    data["param_encodings"][0].update(enc_type="PER_BLOCK", block_size=3)
    assert ("encoding_unsupported", "W") in kinds(cover(model, data, tmp_path))


def test_a_float_encoding_without_float(tmp_path):
    model, data = tiny()
    data["activation_encodings"][1] = {"name": "r", "bw": 16, "dtype": "FLOAT"}
    coverage = cover(model, data, tmp_path)
    assert kinds(coverage) == [("float_encoding", "r")]
    assert cover(model, data, tmp_path, V73).uncovered == ("c", "r")


def test_all_findings_come_at_once(tmp_path):
    model, data = tiny()
    data["activation_encodings"][0]["bw"] = 12
    data["activation_encodings"][0]["offset"] = [0]
    data["activation_encodings"][1]["name"] = "ghost"
    for key in ("scale", "offset"):
        data["param_encodings"][1][key].pop()
    coverage = cover(model, data, tmp_path)
    assert set(kinds(coverage)) == {
        ("encoding_bitwidth", "x"),
        ("encoding_unmatched", "ghost"),
        ("tensor_uncovered", "r"),
        ("encoding_channels", "W2"),
    }
    assert all(finding.message and finding.next_step for finding in coverage.findings)
    with pytest.raises(ProductFailure) as caught:
        require_coverage(coverage, "tiny", "tiny.encodings", V68)
    assert caught.value.findings == coverage.findings
    for finding in coverage.findings:
        assert finding.message in str(caught.value)


def test_the_wide_network_is_covered(tmp_path):
    model = wide_network()
    coverage = cover(model, derive_encodings(model), tmp_path)
    assert coverage.findings == ()
    assert {"mp", "flat", "rows", "columns"} <= set(coverage.inherited)
    assert {bias.name for bias in coverage.derived} >= {"b1", "bd", "b2", "bt", "bg", "bm"}
    assert not {"six", "six_low"} & set(coverage.assigned), "a clip's bounds are plain numbers"


def test_a_fused_tensor_that_something_else_reads_needs_its_own(tmp_path):
    net = Network()
    net.add("Conv", ["x", net.weight("w", 4, 4, 1, 1)], "c")
    net.add("Relu", ["c"], "r")
    net.add("Add", ["c", "r"], "y")
    model = net.model({"x": (1, 4, 2, 2)}, {"y": (1, 4, 2, 2)})
    data = derive_encodings(model)
    assert cover(model, data, tmp_path).findings == ()
    data["activation_encodings"] = [e for e in data["activation_encodings"] if e["name"] != "c"]
    assert kinds(cover(model, data, tmp_path)) == [("tensor_uncovered", "c")]


def test_an_encoding_reaches_back_through_a_transpose(tmp_path):
    """Conv -> Transpose -> Relu is one fused group in AIMET's configuration for v68."""
    net = Network()
    net.add("Conv", ["x", net.weight("w", 4, 4, 1, 1)], "c")
    net.add("Transpose", ["c"], "t", perm=[0, 2, 3, 1])
    net.add("Relu", ["t"], "y")
    model = net.model({"x": (1, 4, 2, 3)}, {"y": (1, 2, 3, 4)})
    data = derive_encodings(model)
    data["activation_encodings"] = [
        e for e in data["activation_encodings"] if e["name"] in ("x", "y")
    ]
    coverage = cover(model, data, tmp_path)
    assert coverage.findings == ()
    assert coverage.fused == ("c", "t")


def test_integer_tensors_need_nothing(tmp_path):
    net = Network()
    net.constant("ids", np.array([0, 2]))
    net.add("Gather", ["x", "ids"], "picked", axis=1)
    net.add("Sigmoid", ["picked"], "y")
    model = net.model({"x": (1, 4)}, {"y": (1, 2)})
    coverage = cover(model, derive_encodings(model), tmp_path)
    assert coverage.findings == ()
    assert coverage.inherited == ("picked",)


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("module.conv1.weight", ["conv1.weight", "conv2.weight", "x"], "conv1.weight"),
        ("/conv1/Conv_output_0", ["/net/conv1/Conv_output_0", "/conv2/Conv_output_0"],
         "/net/conv1/Conv_output_0"),
        ("conv1.weight", ["onnx::Conv_12", "conv_1.weight"], "conv_1.weight"),
        ("relu_7", ["relu_7_updated", "zzz"], "relu_7_updated"),
        ("q", ["completely", "different"], ""),
        ("x", [], ""),
    ],
)  # fmt: skip
def test_closest(name, candidates, expected):
    assert closest(name, candidates) == expected
