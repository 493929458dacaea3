"""The pure parts of netrun: quantizing, input lists, packs, and the ONNX that wraps a binary."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.netrun.exits import DoesNotFit, Usage
from pytest_qnnctx.netrun.files import check_stems, parse_input_list
from pytest_qnnctx.netrun.graph import STORAGE, Graph, Tensor, graph_of
from pytest_qnnctx.netrun.pack import INPUTS, PackWriter, read_head, read_pack
from pytest_qnnctx.netrun.quantize import decode, encode
from pytest_qnnctx.netrun.wrapper import IR_VERSION, wrap

U8 = Tensor("x", "ufixed8", (4,), 0.5, -10)


def test_quantizing_rounds_and_clamps():
    values = np.array([-5.0, 0.24, 0.26, 1e9], np.float32)
    assert encode(U8, values).tolist() == [0, 10, 11, 255]
    assert decode(U8, np.array([0, 10, 11, 255], np.uint8)).tolist() == [-5.0, 0.0, 0.5, 122.5]


@given(
    st.sampled_from(["ufixed8", "sfixed8", "ufixed16", "sfixed16"]),
    st.floats(2.0**-12, 8.0, width=32),
    st.integers(-40000, 0),
    st.lists(st.floats(-300, 300, width=32), min_size=1, max_size=20),
)
def test_quantizing_is_off_by_half_a_step_at_most_inside_the_range(dtype, scale, offset, values):
    tensor = Tensor("x", dtype, (len(values),), scale, offset)
    native = np.dtype(STORAGE[dtype])
    low, high = ((np.iinfo(native).min + offset) * scale, (np.iinfo(native).max + offset) * scale)
    real = np.array(values, np.float32)
    codes = encode(tensor, real)
    assert codes.dtype == native
    nearest = np.clip(real.astype(np.float64), low, high)
    assert np.abs(decode(tensor, codes) - nearest).max() <= scale * 0.501 + abs(low) * 1e-6
    assert (encode(tensor, codes) == codes).all()


@pytest.mark.parametrize(
    ("dtype", "values", "said"),
    [
        ("ufixed8", np.full(2, np.nan, np.float32), "2 NaN"),
        ("ufixed8", np.zeros(3, np.float32), "shape [3]"),
        ("ufixed8", np.zeros(2, np.int64), "int64"),
        ("float32", np.array([1, np.nan], np.float32), "1 NaN"),
        ("float16", np.array([1, 1e6], np.float32), "float16"),
        ("int32", np.array([1, 1.5], np.float32), "no int32"),
        ("int32", np.array([1, 2**31], np.int64), "no int32"),
        ("uint8", np.array([1, -1], np.float32), "no uint8"),
        ("bool8", np.array([1, 2], np.float32), "no bool"),
        ("int64", np.array([0, 2.0**63]), "no int64"),
    ],
)
def test_what_does_not_fit(dtype, values, said):
    with pytest.raises(DoesNotFit, match=said.replace("[", r"\[")):
        encode(Tensor("x", dtype, (2,), 1.0, 0), values)


def test_a_quantized_tensor_without_one_scale_cannot_be_fed_floats():
    with pytest.raises(DoesNotFit, match="no scale"):
        encode(Tensor("x", "ufixed8", (1,)), np.zeros(1, np.float32))


@pytest.mark.parametrize("dtype", sorted(STORAGE))
def test_the_wrapper_is_valid_onnx(dtype, tmp_path):
    graph = Graph("g/1", (Tensor("a:0", dtype, (1, 300)), Tensor("b", dtype, ())), (
        Tensor("y", dtype, (2,)),
    ))  # fmt: skip
    model = onnx.load_from_string(wrap(graph, "context.bin"))
    onnx.checker.check_model(model)
    assert model.ir_version == IR_VERSION <= 10
    (node,) = model.graph.node
    assert (node.op_type, node.domain, node.name) == ("EPContext", "com.microsoft", "g/1")
    assert (list(node.input), list(node.output)) == (["a:0", "b"], ["y"])
    assert {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} == {
        "main_context": 1,
        "embed_mode": 0,
        "ep_cache_context": b"context.bin",
        "source": b"QNNExecutionProvider",
        "partition_name": b"g/1",
    }
    for info, tensor in zip(model.graph.input, graph.inputs, strict=True):
        kind = info.type.tensor_type
        assert onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) == np.dtype(tensor.storage)
        assert kind.HasField("shape")
        assert tuple(dim.dim_value for dim in kind.shape.dim) == tensor.shape


PAIR = Graph(
    "g",
    (Tensor("a", "ufixed8", (2,), 1.0, 0), Tensor("b:=c", "ufixed8", (2,), 1.0, 0)),
    (Tensor("y/0", "ufixed8", (2,)), Tensor("y:0", "ufixed8", (2,))),
)


def test_input_lists():
    listed = parse_input_list("%y/0\n\nx.raw  dir/y.raw\nb:=c:=q.raw a:=p.raw\n", PAIR)
    assert [{name: str(path) for name, path in line.items()} for line in listed.lines] == [
        {"a": "x.raw", "b:=c": "dir/y.raw"},
        {"a": "p.raw", "b:=c": "q.raw"},
    ]
    assert [tensor.name for tensor in listed.outputs] == ["y/0"]
    with pytest.raises(Usage, match="mixes"):
        parse_input_list("a:=x.raw y.raw", PAIR)
    with pytest.raises(DoesNotFit, match="names a, a"):
        parse_input_list("a:=x.raw a:=y.raw", PAIR)


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_no_text_breaks_the_list_parser(text):
    try:
        listed = parse_input_list(text, PAIR)
    except (Usage, DoesNotFit):
        return
    assert listed.lines
    assert all(set(line) == {"a", "b:=c"} for line in listed.lines)


def test_outputs_that_would_share_a_file():
    with pytest.raises(Usage, match=r"y/0.*y:0.*y_0\.raw"):
        check_stems(PAIR.outputs)


def sample(number):
    return {name: np.full(2, number, np.uint8) for name in ("a", "b:=c")}


def test_packs_come_back_as_they_were(tmp_path):
    path = tmp_path / "p"
    with PackWriter(path, INPUTS, PAIR, 3) as pack:
        for number in range(3):
            pack.add(sample(number))
    assert read_head(path, INPUTS)[:2] == (PAIR, 3)
    found = list(read_pack(path, INPUTS))
    assert [each["b:=c"].tolist() for each in found] == [[0, 0], [1, 1], [2, 2]]
    whole = path.read_bytes()
    for cut in (whole[:-1], whole + b"\0", whole[:20], b""):
        path.write_bytes(cut)
        with pytest.raises(Usage, match=r"damaged|not a pack"):
            read_head(path, INPUTS)


def test_a_pack_is_written_whole_or_not_at_all(tmp_path):
    with (
        pytest.raises(ValueError, match="1 samples"),
        PackWriter(tmp_path / "p", INPUTS, PAIR, 2) as pack,
    ):
        pack.add(sample(0))
    with pytest.raises(DoesNotFit), PackWriter(tmp_path / "p", INPUTS, PAIR, 1) as pack:
        pack.add({"a": np.zeros(2, np.float32), "b:=c": np.zeros(2, np.uint8)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        [],
        "text",
        {"name": "g"},
        {"graphs": [{"name": "g", "inputs": [], "outputs": []}]},
        {"name": "g", "inputs": [{"name": "x", "dtype": "ufixed4", "shape": [1]}], "outputs": []},
        {"name": "g", "inputs": [{"name": "x", "dtype": "int8", "shape": [0]}], "outputs": []},
    ],
)
def test_descriptions_that_are_none(data):
    with pytest.raises(Usage, match="io"):
        graph_of(data, None, "io")
