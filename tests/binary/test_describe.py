"""From libQnnSystem's structures to plain values.

The forms V1 and V2 come from synthetic structures laid out here by the vendor's public API: no
binary or library of a QNN that old can be installed. Real files give V3 (test_read_binary.py).
"""

from __future__ import annotations

import ctypes
import math
from ctypes import addressof

import pytest

from pytest_qnnctx.binary import qnn_system as qnn
from pytest_qnnctx.binary.describe import Malformed, UnknownLayout, describe


class Memory:
    """Lays out structures and keeps them alive."""

    def __init__(self) -> None:
        self._kept: list[object] = []

    def text(self, value: str) -> int:
        return self.keep(ctypes.create_string_buffer(value.encode()))

    def keep(self, thing: ctypes._CData) -> int:
        self._kept.append(thing)
        return addressof(thing)

    def tensors(self, form, version, *tensors) -> int:
        array = (form * len(tensors))()
        for slot, (name, dtype, shape, quantize) in zip(array, tensors, strict=True):
            slot.version = version
            slot.body.name = self.text(name)
            slot.body.data_type = dtype
            slot.body.rank = len(shape)
            slot.body.dimensions = self.keep((ctypes.c_uint32 * max(len(shape), 1))(*shape))
            slot.body.quantize = quantize
        return self.keep(array)

    def graph(self, slot, name, inputs, outputs, *, form=qnn.Tensor) -> None:
        slot.name = self.text(name)
        slot.num_inputs, slot.num_outputs = len(inputs), len(outputs)
        slot.inputs = self.tensors(form, 1, *inputs)
        slot.outputs = self.tensors(form, 1, *outputs)


def scale_offset(scale: float, offset: int) -> qnn.QuantizeParams:
    params = qnn.QuantizeParams(definition=1, encoding=0)
    params.form.scale_offset = qnn.ScaleOffset(scale, offset)
    return params


def bw_scale_offset(bits: int, scale: float, offset: int) -> qnn.QuantizeParams:
    params = qnn.QuantizeParams(definition=1, encoding=2)
    params.form.bw_scale_offset = qnn.BwScaleOffset(bits, scale, offset)
    return params


NONE = qnn.QuantizeParams(definition=0x7FFFFFFF, encoding=0x7FFFFFFF)
PER_AXIS = qnn.QuantizeParams(definition=1, encoding=1)
X = ("x", 0x0408, (1, 3, 4), scale_offset(0.5, -128))
Y = ("y", 0x0232, (), NONE)
Z = ("z", 0x0316, (7,), bw_scale_offset(12, 0.25, 0))


@pytest.fixture
def memory() -> Memory:
    return Memory()


def context(memory: Memory, version: int, graphs: ctypes.Array, **more) -> qnn.BinaryInfo:
    info = qnn.BinaryInfo(version=version)
    body = info.u.v3 if version == 3 else info.u.v1
    body.backend_id = 6
    body.build_id = memory.text("v2.22.0.240425")
    body.num_graphs, body.graphs = len(graphs), memory.keep(graphs)
    for name, value in more.items():
        setattr(body, name, value)
    memory.keep(info)
    return info


def test_the_layouts_are_the_public_headers():
    """Offsets and sizes that a C compiler gives the public structures on a 64-bit machine."""
    assert ctypes.sizeof(qnn.Tensor) == 144
    assert ctypes.sizeof(qnn.TensorV1) == 120
    assert [ctypes.sizeof(f) for f in (qnn.GraphInfoV1, qnn.GraphInfoV2)] == [48, 64]
    assert ctypes.sizeof(qnn.GraphInfoV3) == 88
    assert ctypes.sizeof(qnn.GraphBlob) == 40
    assert ctypes.sizeof(qnn.HwInfoBlob) == 24
    assert qnn.BinaryInfo.u.offset == 8
    assert qnn.BinaryInfoV1.hw_info.offset == 80
    assert qnn.BinaryInfoV1.graphs.offset == 120
    assert qnn.BinaryInfoV3.graphs.offset == 96
    assert qnn.BinaryInfoV3.soc_model.offset == 128


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("graph_form", [qnn.GraphInfoV1, qnn.GraphInfoV2, qnn.GraphInfoV3])
@pytest.mark.parametrize("tensor_form", [qnn.TensorV1, qnn.Tensor])
def test_old_forms(memory, version, graph_form, tensor_form):
    graphs = (graph_form * 3)()
    for index, slot in enumerate(graphs):
        slot.version = 1
        memory.graph(slot, f"g{index}", (X, Y, Z), (Y,), form=tensor_form)
    blobs = (qnn.HwInfoBlob * 2)()
    blobs[0] = qnn.HwInfoBlob(1, 2, 4096)
    blobs[1] = qnn.HwInfoBlob(1, 0xABCD_0000_0000, 0)  # the upper half is padding
    info = context(
        memory, version, graphs, hw_info=memory.keep(blobs), hw_info_size=ctypes.sizeof(blobs)
    )
    found = describe(addressof(info))
    assert (found["info_version"], found["build_id"]) == (version, "v2.22.0.240425")
    assert (found["soc_model"], found["dsp_arch"]) == (None, None)
    assert [graph["name"] for graph in found["graphs"]] == ["g0", "g1", "g2"]
    assert [graph["spill_fill_bytes"] for graph in found["graphs"]] == [0, None, 4096]
    graph = found["graphs"][1]
    assert (graph["vtcm_bytes"], graph["optimization_level"], graph["hvx_threads"]) == (None,) * 3
    assert [tensor["name"] for tensor in graph["inputs"]] == ["x", "y", "z"]
    assert [tensor["shape"] for tensor in graph["inputs"]] == [[1, 3, 4], [], [7]]
    assert [(t["scale"], t["offset"]) for t in graph["inputs"]] == [
        (0.5, -128),
        (None, None),
        (0.25, 0),
    ]


def graph_v3(memory: Memory, blob: qnn.GraphBlob | None, inputs=(X,), outputs=(Y,)):
    graphs = (qnn.GraphInfoV3 * 1)()
    graphs[0].version = 3
    memory.graph(graphs[0], "g", inputs, outputs)
    if blob is not None:
        graphs[0].blob, graphs[0].blob_size = memory.keep(blob), ctypes.sizeof(blob)
    return graphs


def test_the_newest_form(memory):
    graphs = graph_v3(memory, qnn.GraphBlob(1, 2**33, 2097152, 3, 0, 4))
    metadata = memory.keep(qnn.ContextBlob(1, 68))
    info = context(memory, 3, graphs, metadata=metadata, metadata_size=8, soc_model=93)
    found = describe(addressof(info))
    assert (found["info_version"], found["soc_model"], found["dsp_arch"]) == (3, 93, 68)
    (graph,) = found["graphs"]
    assert (graph["spill_fill_bytes"], graph["vtcm_bytes"]) == (2**33, 2097152)
    assert (graph["optimization_level"], graph["hvx_threads"]) == (3, 4)


def test_several_new_graphs_with_new_tensors(memory):
    graphs = (qnn.GraphInfoV3 * 3)()
    for index, slot in enumerate(graphs):
        slot.version = 3
        memory.graph(slot, f"g{index}", (X, Z), (Y, X))
        # Numbers that an element's version could be, where a smaller step would look for one.
        slot.num_updateable = slot.start_op = 1
        for at in (slot.inputs, slot.outputs):
            for place in (at, at + 144):
                qnn.Tensor.from_address(place).version = 2
    found = describe(addressof(context(memory, 3, graphs)))
    assert [graph["name"] for graph in found["graphs"]] == ["g0", "g1", "g2"]
    for graph in found["graphs"]:
        assert [tensor["name"] for tensor in graph["inputs"]] == ["x", "z"]
        assert [tensor["name"] for tensor in graph["outputs"]] == ["y", "x"]


WILD = 0x2B0000004B


@pytest.mark.parametrize("version", [1, 2])
def test_what_lies_in_the_unused_end_of_an_element_is_not_read(memory, version):
    """Whatever was in that memory before: a version, and a pointer that leads nowhere, or a good
    one. The library does not clear it, so a file was called damaged once in some ten thousand."""
    graphs = (qnn.GraphInfoV3 * 2)()
    for slot in graphs:
        slot.version = 1
        memory.graph(slot, "g", (X, Z), (Y, X))
    info = context(memory, 2, graphs)
    for pointer in (WILD, memory.text("old"), graphs[0].inputs):
        for slot in graphs:
            slot.num_updateable, slot.updateable = version, pointer
            slot.blob_size, slot.blob, slot.start_op = 1, pointer, 1
            for at in (slot.inputs, slot.outputs):
                ctypes.c_uint32.from_address(at + 120).value = version
                ctypes.c_uint64.from_address(at + 136).value = pointer
        for graph in describe(addressof(info))["graphs"]:
            assert [tensor["name"] for tensor in graph["inputs"]] == ["x", "z"]
            assert [tensor["name"] for tensor in graph["outputs"]] == ["y", "x"]


@pytest.mark.parametrize("where", ["info", "graphs", "name", "inputs", "tensor", "dimensions"])
def test_a_pointer_that_leads_nowhere_is_damage(memory, where):
    graphs = graph_v3(memory, None, inputs=(X, Z))
    info = context(memory, 3, graphs)
    tensor = qnn.Tensor.from_address(graphs[0].inputs).body
    at = addressof(info)
    if where == "info":
        at = WILD
    elif where == "graphs":
        info.u.v3.graphs = WILD
    elif where in ("name", "inputs"):
        setattr(graphs[0], where, WILD)
    else:
        setattr(tensor, "name" if where == "tensor" else where, WILD)
    with pytest.raises(Malformed):
        describe(at)


def test_a_vtcm_size_that_counts_mebibytes(memory):
    info = context(memory, 3, graph_v3(memory, qnn.GraphBlob(1, 0, 8, 3, 0, 4)))
    assert describe(addressof(info))["graphs"][0]["vtcm_bytes"] == 8 * 2**20


def test_no_vtcm_at_all_is_unknown(memory):
    info = context(memory, 3, graph_v3(memory, qnn.GraphBlob(1, 0, 0, 3, 0, 4)))
    assert describe(addressof(info))["graphs"][0]["vtcm_bytes"] is None


@pytest.mark.parametrize("blob", [None, qnn.GraphBlob(2, 5, 5, 5, 5, 5)])
def test_a_blob_that_is_not_known_tells_nothing(memory, blob):
    (graph,) = describe(addressof(context(memory, 3, graph_v3(memory, blob))))["graphs"]
    assert graph["spill_fill_bytes"] is None
    assert graph["optimization_level"] is None


def test_a_short_blob_tells_nothing(memory):
    graphs = graph_v3(memory, qnn.GraphBlob(1, 5, 5, 5, 5, 5))
    graphs[0].blob_size = 16
    (graph,) = describe(addressof(context(memory, 3, graphs)))["graphs"]
    assert graph["spill_fill_bytes"] is None


def test_quantization_by_channel_has_no_single_scale(memory):
    graphs = graph_v3(memory, None, inputs=(("x", 0x0408, (1,), PER_AXIS),))
    (tensor,) = describe(addressof(context(memory, 3, graphs)))["graphs"][0]["inputs"]
    assert (tensor["scale"], tensor["offset"]) == (None, None)


@pytest.mark.parametrize("scale", [math.nan, math.inf, 0.0, -0.5])
def test_a_scale_that_cannot_be_is_damage(memory, scale):
    graphs = graph_v3(memory, None, inputs=(("x", 0x0408, (1,), scale_offset(scale, 0)),))
    with pytest.raises(Malformed, match="scale"):
        describe(addressof(context(memory, 3, graphs)))


@pytest.mark.parametrize("field", ["name", "inputs", "outputs"])
def test_a_missing_part_of_a_graph_is_damage(memory, field):
    graphs = graph_v3(memory, None)
    setattr(graphs[0], field, None)
    with pytest.raises(Malformed):
        describe(addressof(context(memory, 3, graphs)))


@pytest.mark.parametrize(("field", "value"), [("rank", 17), ("dimensions", None), ("name", None)])
def test_a_broken_tensor_is_damage(memory, field, value):
    graphs = graph_v3(memory, None)
    setattr(qnn.Tensor.from_address(graphs[0].inputs).body, field, value)
    with pytest.raises(Malformed):
        describe(addressof(context(memory, 3, graphs)))


@pytest.mark.parametrize("count", [0, 5000])
def test_an_absurd_number_of_graphs_is_damage(memory, count):
    info = context(memory, 3, graph_v3(memory, None), num_graphs=count)
    with pytest.raises(Malformed, match="graphs"):
        describe(addressof(info))


def test_a_name_that_is_not_text_is_damage(memory):
    graphs = graph_v3(memory, None)
    graphs[0].name = memory.keep(ctypes.create_string_buffer(b"\xff\xfe"))
    with pytest.raises(Malformed, match="not text"):
        describe(addressof(context(memory, 3, graphs)))


@pytest.mark.parametrize(
    ("newer", "damaged"), [(1, 0xDEADBEEF), (3, 0)], ids=["soon and absurd", "later and none"]
)
def test_unknown_versions_are_not_guessed_at(memory, newer, damaged):
    """A number that a newer library may give is the library's; any other is the file's fault."""

    def describe_with(info: int = 3, graph: int = 3, tensor: int = 1) -> None:
        graphs = graph_v3(memory, None)
        graphs[0].version = graph
        qnn.Tensor.from_address(graphs[0].inputs).version = tensor
        found = context(memory, 3, graphs)
        found.version = info
        describe(addressof(found))

    describe_with()
    for places, newest in (("info", 3), ("graph", 3), ("tensor", 2)):
        with pytest.raises(UnknownLayout, match=f"version {newest + newer}"):
            describe_with(**{places: newest + newer})
        with pytest.raises(Malformed, match=f"version {damaged}"):
            describe_with(**{places: damaged})


def test_an_array_with_a_broken_element_is_damage(memory):
    graphs = graph_v3(memory, None, inputs=(X, Y, Z))
    qnn.Tensor.from_address(graphs[0].inputs + 144).version = 77
    with pytest.raises(Malformed, match="not each of its 3"):
        describe(addressof(context(memory, 3, graphs)))
