from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.build.compiled_graph import float_ops
from pytest_qnnctx.build.qairt.dlc_info import like_expected, parse_dlc_info
from pytest_qnnctx.build.quantize.expected import ExpectedEncoding

HEAD = """DLC info of: /somewhere/net.dlc
Model Version: N/A
Converter version: 2.37.1.250807093845
==========
Info of graph: net
----------
| Id | Name | Type | Inputs | Outputs | Out Dims | Runtimes | Parameters |
----------
"""


def tensor(name: str, kind: str, role: str, dims: str = "1,8,8,3") -> str:
    return f"{name} (data type: {kind}; tensor dimension: [{dims}]; tensor type: {role})"


def row(*cells: str) -> str:
    number, name, op, inputs, outputs, parameters = cells
    return f"| {number} | {name} | {op} | {inputs} | {outputs} | 1x8 | A D | {parameters} |\n"


def encoding(name: str, bits: int, low: float, high: float, offset: int) -> str:
    scale = (high - low) / (2**bits - 1)
    return (
        f"{name} encoding : bitwidth {bits}, min {low:.12f}, max {high:.12f}, "
        f"scale {scale:.12f}, offset {offset:.12f}"
    )


QUANTIZED = (
    HEAD
    + row(
        "0",
        "/c1/Conv",
        "Conv2d",
        tensor("x", "uFxp_8", "APP_WRITE") + " [NW Input]",
        tensor("y", "uFxp_16", "NATIVE"),
        "bias_op_name: b",
    )
    + row("", "", "", tensor("w", "sFxp_8", "STATIC"), "", encoding("x", 8, -1, 1, -128))
    + row("", "", "", "", "", encoding("y", 16, 0, 1e-6, 0))
    + row(
        "",
        "",
        "",
        "",
        "",
        "w encoding for channel_0: bitwidth 8, min -0.117, max 0.116, scale 0.000917, offset 0.0",
    )
    + row("", "", "", "", "", "axis-quant: axis: 0, num_elements: 32 (above encoding is only ...)")
    + row(
        "1",
        "soft",
        "Softmax",
        tensor("y", "uFxp_16", "NATIVE"),
        tensor("out", "Float_32", "APP_READ"),
        "",
    )
    + "Total parameters: 9\nOps used by Graph: Conv2d, Softmax\n"
)


def test_ops_tensors_and_encodings_are_read():
    (graph,) = parse_dlc_info(QUANTIZED)
    assert graph.name == "net"
    conv, softmax = graph.graph.nodes
    assert (conv.name, conv.op, conv.inputs, conv.outputs) == (
        "/c1/Conv",
        "Conv2d",
        ("x", "w"),
        ("y",),
    )
    assert softmax.inputs == ("y",)
    tensors = graph.graph.tensors
    assert (tensors["x"].dtype, tensors["x"].role, tensors["x"].offset) == (0x0408, 0, -128)
    assert tensors["w"].channels == 32
    assert tensors["w"].dtype == 0x0308
    assert tensors["out"].dtype == 0x0232


def test_a_tiny_scale_keeps_its_digits():
    (graph,) = parse_dlc_info(QUANTIZED)
    scale = graph.graph.tensors["y"].scale
    assert scale is not None
    assert abs(scale - 1e-6 / 65535) < 1e-6 * (1e-6 / 65535)


def test_float_ops_are_named_as_for_the_other_compiler():
    assert float_ops(g.graph for g in parse_dlc_info(QUANTIZED)) == ("soft (Softmax)",)


def test_a_symmetric_activation_is_seen_as_the_signed_one_that_was_asked_for():
    (graph,) = parse_dlc_info(QUANTIZED)
    wanted = {"x": ExpectedEncoding((2 / 255,), (0,), 8, signed=True)}
    (seen,) = like_expected([graph.graph], wanted)
    assert (seen.tensors["x"].dtype, seen.tensors["x"].offset) == (0x0308, 0)
    unsigned = {"x": ExpectedEncoding((2 / 255,), (128,), 8, signed=False)}
    (same,) = like_expected([graph.graph], unsigned)
    assert same.tensors["x"].offset == -128


def test_what_is_not_understood_gives_nothing():
    assert parse_dlc_info("") == ()
    assert parse_dlc_info(HEAD) == ()
    assert parse_dlc_info("Segmentation fault") == ()


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.integers(0, len(QUANTIZED)))
def test_no_damage_ends_in_an_exception(text, place):
    parse_dlc_info(QUANTIZED[:place] + text + QUANTIZED[place:])
    parse_dlc_info(HEAD + text)
