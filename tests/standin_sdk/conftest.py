"""One model, quantized once; each test works on a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from standin_bench import Bench, make_bench
from standin_sdk import make_model_library


@pytest.fixture(scope="session")
def quantized(tmp_path_factory) -> Bench:
    """One on which the first two stages have run. Read it only."""
    bench = make_bench(tmp_path_factory.mktemp("standin"))
    assert bench.convert("--quantization_overrides", "net.encodings").returncode == 0
    assert bench.quantize().returncode == 0
    return bench


@pytest.fixture
def bench(quantized, tmp_path) -> Bench:
    """One of its own, with the DLCs of the first two stages."""
    own = make_bench(tmp_path)
    for name in ("net.dlc", "net_q.dlc"):
        shutil.copy(quantized.work / name, own.work / name)
    return own


@pytest.fixture(scope="session")
def library(tmp_path_factory, quantized) -> Path:
    where = tmp_path_factory.mktemp("library")
    return make_model_library(
        quantized.work / "net.onnx", where, encodings=quantized.work / "net.encodings"
    )
