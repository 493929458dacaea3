"""Reading the vendor's dump of the compiled graph. The form was taken from QNN 2.51's own."""

from __future__ import annotations

import json

import pytest

from pytest_qnnctx.build.compiled_graph import (
    float_ops,
    parse_compiled_graph,
    plain_name,
    read_compiled_graphs,
)

FLOAT32, UFIXED16, SFIXED8 = 0x0232, 0x0416, 0x0308
INPUT, OUTPUT, NATIVE, STATIC = 0, 1, 3, 4


def tensor(dtype: int, role: int = NATIVE, scale: float | None = None, offset: int = 0) -> dict:
    undefined = 0x7FFFFFFF
    params = {"definition": undefined, "encoding": undefined}
    if scale is not None:
        pair = {"scale": scale, "offset": offset}
        params = {"definition": 1, "encoding": 0, "scale_offset": pair}
    return {"data_type": dtype, "type": role, "dims": [1, 4], "quant_params": params}


def per_channel(dtype: int, channels: int) -> dict:
    pair = {"scale": 4.2e-45, "offset": channels}
    params = {"definition": 1, "encoding": 1, "scale_offset": pair}
    return {"data_type": dtype, "type": STATIC, "dims": [channels], "quant_params": params}


def graph(nodes: dict[str, tuple[str, list[str], list[str]]], tensors: dict[str, dict]):
    data = {
        name: {"type": op, "input_names": inputs, "output_names": outputs}
        for name, (op, inputs, outputs) in nodes.items()
    }
    return {"graph": {"nodes": data, "tensors": tensors}}


BOUNDARY = graph(
    {
        "q": ("Quantize", ["x"], ["x_q"]),
        "conv_token_1": ("Conv2d", ["x_q", "w"], ["y_q"]),
        "dq": ("Dequantize", ["y_q"], ["y"]),
    },
    {
        "x": tensor(FLOAT32, INPUT),
        "x_q": tensor(UFIXED16, scale=0.5, offset=-3),
        "w": per_channel(SFIXED8, 16),
        "y_q": tensor(UFIXED16, scale=0.25),
        "y": tensor(FLOAT32, OUTPUT),
    },
)


def test_the_interface_is_no_float_op():
    assert float_ops([parse_compiled_graph(BOUNDARY)]) == ()


def test_a_float_op_is_named_as_in_the_onnx():
    island = graph(
        {
            "dq_token_4": ("Dequantize", ["a"], ["b"]),
            "exp_token_2": ("ElementWiseExp", ["b"], ["c"]),
        },
        {
            "a": tensor(UFIXED16, scale=1.0),
            "b": tensor(FLOAT32),
            "c": tensor(FLOAT32, OUTPUT),
        },
    )
    assert float_ops([parse_compiled_graph(island)]) == ("dq (Dequantize)", "exp (ElementWiseExp)")


def test_quantization_is_read():
    tensors = parse_compiled_graph(BOUNDARY).tensors
    assert (tensors["x_q"].scale, tensors["x_q"].offset) == (0.5, -3)
    assert (tensors["w"].scale, tensors["w"].channels) == (None, 16)
    assert (tensors["x"].scale, tensors["x"].channels) == (None, None)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("conv1_token_1", "conv1"),
        ("QuantizeLinear_token_16_out0", "QuantizeLinear_out0"),
        ("my_token_reader", "my_token_reader"),
        ("conv", "conv"),
    ],
)
def test_the_compilers_suffix_is_taken_off(name, plain):
    assert plain_name(name) == plain


@pytest.mark.parametrize("text", ["{", "[]", '{"graph": 1}', '{"graph": {"nodes": {}}}'])
def test_a_dump_that_is_not_understood_is_no_evidence(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert read_compiled_graphs(tmp_path) == ()


def test_graphs_are_read_from_a_directory(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(BOUNDARY))
    (tmp_path / "a_tensor_log.json").write_text('{"summary": {}}')
    assert len(read_compiled_graphs(tmp_path)) == 1
