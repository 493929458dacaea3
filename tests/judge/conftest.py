"""Plain data for gates: what a good model on a good board gives, to be changed by each test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_qnnctx.binary.info import BinaryInfo, GraphInfo, TensorInfo
from pytest_qnnctx.boards.board import BoardFacts
from pytest_qnnctx.errors import BuildFailed, Finding
from pytest_qnnctx.judge.measurements import Measurements
from pytest_qnnctx.model import Artifact, EncodingsUse, Provenance, Target

MIB = 2**20


@pytest.fixture
def graph():
    """A quantized graph that does not spill in 2 MiB."""
    return GraphInfo(
        name="net",
        inputs=(TensorInfo("x", "ufixed8", (1, 8), 0.1, 0),),
        outputs=(TensorInfo("y", "ufixed8", (1, 4), 0.01, 0),),
        spill_fill_bytes=0,
        vtcm_bytes=2 * MIB,
    )


@pytest.fixture
def binary(graph):
    return BinaryInfo(
        sha256="ab" * 32,
        size_bytes=3 * MIB,
        htp_arch="v68",
        soc="QCS6490",
        qnn_version="2.51.0.260929181845",
        compiled_vtcm_bytes=2 * MIB,
        info_version=3,
        graphs=(graph,),
    )


@pytest.fixture
def provenance():
    return Provenance(
        key="k",
        model="net",
        files={},
        target={},
        toolchain={"name": "ort"},
        quantization="w8a8",
        commands=(),
        built_at="",
        build_seconds=1.0,
        builder="",
        host="",
        float_ops=(),
        host_ops=(),
        encodings=EncodingsUse("1.0.0", total=3, applied=3),
    )


@pytest.fixture
def good(binary, provenance):
    """Measurements with which every gate on files and identities passes."""
    return Measurements(
        target=Target("QCS6490", "v68", 93, 2, False),
        board=BoardFacts("x86_64", False, "v68", "QCS6490", "2.51.0.260929181845"),
        artifact=Artifact(Path("net.bin"), binary.sha256, binary.size_bytes, provenance),
        binary=binary,
    )


@pytest.fixture
def unbuilt(good):
    """Measurements of a build that failed with findings of the given kinds and subjects."""

    def make(*findings: tuple[str, str]) -> Measurements:
        error = BuildFailed(
            "net.onnx was refused\nby the compiler",
            findings=[Finding(kind, subject, "message") for kind, subject in findings],
        )
        return replace(good, artifact=None, binary=None, build_error=error)

    return make
