"""An SDK, a model and a shell: what the stand-in's own tests work with."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from standin_sdk import make_sdk

V218, V237, V245 = "2.18.0.240101", "2.37.1.250807093845", "2.45.40.260406"
CONVERTER, QUANTIZER = "qairt-converter", "qairt-quantizer"
GENERATOR, INFO = "qnn-context-binary-generator", "qairt-dlc-info"
SYMMETRIC = {"is_sym": True, "offset": [-128]}


def network(batch: int | str = 1) -> onnx.ModelProto:
    """``x`` -> Conv ``c``, Relu ``r`` -> Conv ``y``."""
    random = np.random.default_rng(0)
    weights = {
        name: random.normal(0, 0.2, (4, channels, 3, 3)).astype(np.float32)
        for name, channels in (("w1", 3), ("w2", 4))
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w1"], ["c"], name="first", pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node("Conv", ["r", "w2"], ["y"], name="second", pads=[1] * 4),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4, 8, 8])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encodings(*more: str) -> dict:
    def entry(name: str, scale: float, **kind: object) -> dict:
        plain = {"name": name, "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "is_sym": False}
        return {**plain, "scale": [scale], "offset": [0], **kind}

    names = ("x", "r", "y", *more)
    return {
        "version": "1.0.0",
        "activation_encodings": [entry(name, 0.01) for name in names],
        "param_encodings": [entry(name, 0.005, **SYMMETRIC) for name in ("w1", "w2")],
    }


@dataclass
class Bench:
    """An SDK, and a directory with the model ``net`` in which its tools run."""

    sdk: Path
    work: Path

    def shell(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run in bash with nothing set up."""
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.work), **env}
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.work,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def run(self, tool: str, *flags: object, before: str = "") -> subprocess.CompletedProcess[str]:
        """Run ``tool`` as a user shall: environment sourced, directory restored."""
        setup = (
            f"source {shlex.quote(str(self.sdk / 'bin/envsetup.sh'))} >/dev/null; cd - >/dev/null"
        )
        command = shlex.join([tool, *map(str, flags)])
        return self.shell(f"cd .; {before}\n{setup}\n{command}")

    def convert(self, *more: object) -> subprocess.CompletedProcess[str]:
        return self.run(CONVERTER, "--input_network", "net.onnx", "--output_path", "net.dlc", *more)

    def quantize(self, *more: object) -> subprocess.CompletedProcess[str]:
        return self.run(QUANTIZER, "--input_dlc", "net.dlc", "--output_dlc", "net_q.dlc", *more)

    def configure(self, graph: str = "net", soc: str = "soc_model", **block: object) -> Path:
        block = {"graph_names": [graph], "vtcm_mb": 2, "O": 3, **block}
        device = {"dsp_arch": "v68", soc: 93}
        (self.work / "htp.json").write_text(json.dumps({"graphs": [block], "devices": [device]}))
        files = {"shared_library_path": "libQnnHtpNetRunExtensions.so"}
        files["config_file_path"] = "htp.json"
        outer = self.work / "config.json"
        outer.write_text(json.dumps({"backend_extensions": files}))
        return outer

    def generate(self, *more: object, name: str = "net") -> subprocess.CompletedProcess[str]:
        return self.run(
            *(GENERATOR, "--model", "libQnnModelDlc.so", "--backend", "libQnnHtp.so"),
            *("--dlc_path", "net_q.dlc", "--output_dir", "out", "--binary_file", name, *more),
        )

    @property
    def binary(self) -> Path:
        return self.work / "out" / "net.bin"


def make_bench(where: Path, version: str = V237, **sdk: object) -> Bench:
    work = where / "work here"
    work.mkdir(parents=True)
    onnx.save(network(), str(work / "net.onnx"))
    (work / "net.encodings").write_text(json.dumps(encodings()))
    return Bench(make_sdk(where / "an sdk" / version, version, **sdk), work)
