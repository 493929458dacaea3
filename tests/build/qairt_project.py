"""A project with a classifier, a stand-in SDK, and the toolchain ``qairt`` set up for both."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_STANDIN = str(Path(__file__).resolve().parent.parent / "standin_sdk")
if _STANDIN not in sys.path:
    sys.path.append(_STANDIN)

from standin_sdk import make_sdk  # noqa: E402

from pytest_qnnctx.build.qairt.toolchain import QairtToolchain  # noqa: E402
from pytest_qnnctx.build.toolchain import BuildProduct, BuildRequest  # noqa: E402
from pytest_qnnctx.config import Settings  # noqa: E402
from pytest_qnnctx.model import Model, Target  # noqa: E402

QCS6490 = Target("QCS6490", "v68", 93, 2, has_float=False)
V237, V245 = "2.37.1.250807093845", "2.45.40.260406"


def network(batch: int | str = 1) -> onnx.ModelProto:
    """``x`` 1x3x8x8 -> ``y`` 1x3: Conv, Relu, GlobalAveragePool, Flatten, Gemm."""
    random = np.random.default_rng(0)
    weights = {
        "w1": random.normal(0, 0.3, (3, 3, 3, 3)).astype(np.float32),
        "w2": random.normal(0, 0.5, (3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encodings(*, without: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> dict[str, Any]:
    """AIMET encodings 1.0.0, W8A8, for :func:`network`."""

    def record(name: str, scale: float, offset: int, *, symmetric: bool) -> dict[str, Any]:
        return {
            "name": name,
            "bw": 8,
            "dtype": "INT",
            "enc_type": "PER_TENSOR",
            "is_sym": symmetric,
            "scale": [scale],
            "offset": [offset],
        }

    activations = {"x": (0.004, 0), "r": (0.01, 0), "p": (0.006, 0), "y": (0.02, -128)}
    activations |= dict.fromkeys(more, (0.01, 0))
    return {
        "version": "1.0.0",
        "activation_encodings": [
            record(name, scale, offset, symmetric=False)
            for name, (scale, offset) in activations.items()
            if name not in without
        ],
        "param_encodings": [
            record("w1", 0.01, -128, symmetric=True),
            record("w2", 0.012, -128, symmetric=True),
        ],
    }


def samples(count: int = 4) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    return [{"x": random.uniform(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


@dataclass
class Project:
    """``root`` holds the model and ``.qualcomm-env``; ``sdk`` is the stand-in."""

    root: Path
    sdk: Path
    said: list[str] = field(default_factory=list)
    _builds: int = 0

    def settings(self, **more: Any) -> Settings:
        return Settings(root=self.root, **more)

    def toolchain(self, **more: Any) -> QairtToolchain:
        return QairtToolchain(self.settings(**more))

    def model(self, encoded: dict[str, Any] | None = None, **more: Any) -> Model:
        """The classifier on the disk, with encodings unless ``encoded`` is empty."""
        path = self.root / "net.onnx"
        if not path.exists():
            onnx.save(network(), str(path))
        encoded = encodings() if encoded is None else encoded
        if encoded:
            file = self.root / "net.encodings"
            file.write_text(json.dumps(encoded))
            more["encodings"] = file
        return Model(path, **more)

    def request(self, model: Model, target: Target = QCS6490, seconds: float = 300) -> BuildRequest:
        self._builds += 1
        work = self.root / f"work {self._builds}"
        work.mkdir()
        return BuildRequest(model, target, work, seconds)

    def build(
        self,
        model: Model,
        target: Target = QCS6490,
        *,
        toolchain: QairtToolchain | None = None,
        seconds: float = 300,
        **more: Any,
    ) -> BuildProduct:
        toolchain = toolchain or self.toolchain(**more)
        return toolchain.build(self.request(model, target, seconds), self.said.append)


def make_project(root: Path, version: str = V237, **sdk: Any) -> Project:
    """A project in ``root`` with an SDK of ``version`` beside it."""
    made = make_sdk(root / "sdk dir" / version, version=version, **sdk)
    (root / ".qualcomm-env").write_text(f"QC_SETUP_VERSION=1\nQC_QNN_SDK_ROOT='{made}'\n")
    (root / ".qualcomm-env").chmod(0o600)
    return Project(root, made)
