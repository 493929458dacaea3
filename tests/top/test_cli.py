"""The command ``qnnctx``, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

AIMET = Path(__file__).parent.parent / "data" / "aimet"
MODEL = (str(AIMET / "tiny.onnx"), "--encodings", str(AIMET / "tiny_1.0.0.encodings"))


def qnnctx(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest_qnnctx.cli", *arguments]
    return subprocess.run(argv, check=False, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binary that the command built."""
    folder = tmp_path_factory.mktemp("built")
    done = qnnctx("build", *MODEL, "--board", "sim", cwd=folder)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_build_prints_the_path(binary):
    assert binary.name == "tiny_w8a16_v68.bin"
    assert binary.exists()


def test_inspect_json_has_the_promised_keys(binary, tmp_path):
    done = qnnctx("inspect", str(binary), "--json", cwd=tmp_path)
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert found["htp_arch"] == "v68"
    assert found["soc"] == "QCS6490"
    assert found["qnn_version"].startswith("2.")
    assert found["size_bytes"] == binary.stat().st_size
    (graph,) = found["graphs"]
    keys = {"spill_fill_bytes", "vtcm_bytes", "optimization_level", "hvx_threads"}
    assert keys | {"name", "inputs", "outputs"} <= set(graph)
    (tensor,) = graph["inputs"]
    assert (tensor["name"], tensor["dtype"], tensor["shape"]) == ("x", "ufixed16", [1, 3, 32, 32])
    assert tensor["scale"] > 0
    assert tensor["offset"] <= 0


def test_inspect_for_people(binary, tmp_path):
    done = qnnctx("inspect", str(binary), cwd=tmp_path)
    assert done.returncode == 0
    for word in ("v68", "QCS6490", "ufixed16", "spill"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("content", "status"), [(b"", 1), (b"\x7fELF" + b"x" * 5000, 1), (None, 2)]
)
def test_what_is_no_binary(tmp_path, content, status):
    path = tmp_path / "broken.bin"
    if content is not None:
        path.write_bytes(content)
    done = qnnctx("inspect", str(path), "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert "broken.bin" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(binary, tmp_path):
    line = f"{sys.executable} -m pytest_qnnctx.cli inspect {binary} | head -1"
    done = subprocess.run(
        ["bash", "-c", line], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_build_without_a_board_says_what_to_do(tmp_path):
    done = qnnctx("build", *MODEL, cwd=tmp_path)
    assert done.returncode == 2
    assert "--board" in done.stderr


def test_a_model_that_does_not_compile_is_told_apart_by_the_status(tmp_path):
    done = qnnctx("build", MODEL[0], "--board", "sim", cwd=tmp_path)
    assert done.returncode == 1
    assert "computes in floating point" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shape", ["x", "x=", "=1,2", "x=1,a", "x=0,1"])
def test_a_bad_shape_is_named(tmp_path, shape):
    done = qnnctx("build", *MODEL, "--board", "sim", "--shape", shape, cwd=tmp_path)
    assert done.returncode == 2
    assert f"--shape {shape}" in done.stderr


def test_boards_lists_the_emulator_and_the_file(tmp_path):
    (tmp_path / "boards.yaml").write_text(
        "boards:\n  rb3: {soc: qcs6490, htp_arch: v68, transport: ssh, host: rb3}\n"
    )
    done = qnnctx("boards", cwd=tmp_path)
    lines = [line.split()[:5] for line in done.stdout.splitlines()]
    assert lines[0] == ["name", "SoC", "HTP", "VTCM", "transport"]
    assert ["rb3", "QCS6490", "v68", "2", "MB"] in lines
    assert ["sim", "QCS6490", "v68", "2", "MB"] in lines


def test_a_broken_boards_file_is_a_usage_error(tmp_path):
    (tmp_path / "boards.yaml").write_text("boards: [")
    done = qnnctx("boards", cwd=tmp_path)
    assert done.returncode == 2
    assert "boards.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_finds_all_that_is_here(tmp_path):
    done = qnnctx("doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "MISSING" not in done.stdout
    for what in ("toolchain: ort", "libQnnSystem.so", "board sim: QNN 2"):
        assert what in done.stdout
