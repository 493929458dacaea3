"""The description of a binary for people."""

from __future__ import annotations

from pathlib import Path

from pytest_qnnctx.binary.info import BinaryInfo, GraphInfo, TensorInfo
from pytest_qnnctx.binary.view import to_text

GRAPH = GraphInfo(
    "net",
    inputs=(
        TensorInfo("image", "ufixed8", (1, 3, 224, 224), 0.0078125, -128),
        TensorInfo("n", "int32", ()),
    ),
    outputs=(TensorInfo("logits", "float32", (1, 10)),),
    spill_fill_bytes=0,
    vtcm_bytes=2 * 2**20,
    optimization_level=3,
)
INFO = BinaryInfo(
    sha256="ab" * 32,
    size_bytes=3 * 2**20,
    htp_arch="v68",
    qnn_version="2.51.0.26",
    compiled_vtcm_bytes=2 * 2**20,
    info_version=3,
    graphs=(GRAPH,),
    unknown={"soc": "not told", "graphs[0].hvx_threads": "too old"},
)


def test_a_whole_description():
    assert to_text(INFO, Path("net.bin")).splitlines() == [
        "net.bin",
        "  size               3145728 bytes (3.00 MiB)",
        f"  sha256             {'ab' * 32}",
        "  HTP architecture   v68",
        "  SoC                unknown: not told",
        "  QNN version        2.51.0.26",
        "  VTCM compiled for  2097152 bytes (2.00 MiB)",
        "  binary info        V3",
        "",
        "graph net",
        "  spill/fill buffer   0 bytes",
        "  VTCM                2097152 bytes (2.00 MiB)",
        "  optimization level  3",
        "  HVX threads         unknown: too old",
        "  inputs",
        "    image  ufixed8  1x3x224x224  scale 0.0078125  offset -128",
        "    n      int32    scalar",
        "  outputs",
        "    logits  float32  1x10",
    ]


def test_no_graphs_says_why():
    text = to_text(BinaryInfo("0", 1, unknown={"graphs": "no library"}), Path("m.bin"))
    assert "  graphs             unknown: no library" in text.splitlines()
    assert "  HTP architecture   unknown" in text.splitlines()


def test_a_name_cannot_command_the_terminal():
    info = BinaryInfo("0", 1, graphs=(GraphInfo("\x1b[2Jnet\n", inputs=GRAPH.inputs),))
    text = to_text(info, Path("m.bin"))
    assert "\x1b" not in text
    assert r"graph '\x1b[2Jnet\n'" in text.splitlines()
