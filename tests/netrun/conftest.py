"""What the tests of netrun share: compiled nets, and a way to run netrun as a user does."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import pytest_qnnctx

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Net:
    """A compiled net; ``samples`` are (inputs, outputs of the CPU) by tensor name, as codes."""

    name: str
    binary: Path
    io: Path
    graph: dict
    samples: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]

    def real(self, name: str, codes: np.ndarray) -> np.ndarray:
        (tensor,) = [t for t in self.graph["inputs"] + self.graph["outputs"] if t["name"] == name]
        if tensor["scale"] is None:
            return codes.astype(np.float32)
        return ((codes.astype(np.float64) + tensor["offset"]) * tensor["scale"]).astype(np.float32)

    def quantum(self, name: str) -> float:
        (tensor,) = [t for t in self.graph["outputs"] if t["name"] == name]
        return tensor["scale"] or 0.0


@pytest.fixture(scope="session")
def nets_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("onnxruntime_qnn") is None:
        pytest.skip("needs onnxruntime-qnn, which compiles and runs the nets")
    directory = tmp_path_factory.mktemp("nets")
    done = subprocess.run(
        [sys.executable, str(HERE / "compile_nets.py"), str(directory)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture(scope="session")
def net(nets_dir: Path) -> Callable[[str], Net]:
    def get(name: str) -> Net:
        graph = json.loads((nets_dir / f"{name}.json").read_text())
        with np.load(nets_dir / f"{name}.npz") as data:
            samples = [
                tuple(
                    {t["name"]: data[f"{key}{i}_{n}"] for n, t in enumerate(graph[side])}
                    for key, side in (("in", "inputs"), ("out", "outputs"))
                )
                for i in range(2)
            ]
        return Net(name, nets_dir / f"{name}.bin", nets_dir / f"{name}.json", graph, samples)

    return get


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that says what went wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("netrun: error:")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


@pytest.fixture
def netrun(tmp_path: Path) -> Callable[..., Done]:
    """Run ``python -m pytest_qnnctx.netrun`` in the test's directory."""

    def run(*args: object, command: Sequence[str] = (), **env: str) -> Done:
        start = list(command) or [sys.executable, "-m", "pytest_qnnctx.netrun"]
        root = str(Path(pytest_qnnctx.__file__).parent.parent)
        done = subprocess.run(
            [*start, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": root, **env},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def write_list(tmp_path: Path) -> Callable[..., Path]:
    """Write samples as raw files, and an input list of them (``named`` or bare, with ``head``)."""

    def write(
        samples: Sequence[dict[str, np.ndarray]], *, named: bool = True, head: str = ""
    ) -> Path:
        lines = [head] if head else []
        for index, sample in enumerate(samples):
            entries = []
            for place, (name, values) in enumerate(sample.items()):
                path = tmp_path / f"in_{index}_{place}.raw"
                path.write_bytes(values.tobytes())
                entries.append(f"{name}:={path}" if named else str(path))
            lines.append(" ".join(entries))
        listed = tmp_path / "list.txt"
        listed.write_text("\n".join(lines) + "\n")
        return listed

    return write
