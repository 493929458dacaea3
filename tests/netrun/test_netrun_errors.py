"""How netrun fails: one line, an exit code that says whose fault it is, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pytest_qnnctx

SHAPE = (1, 3, 8, 8)


@pytest.fixture
def u8(net, netrun):
    """Run the net ``u8`` with its own description, and with these arguments."""
    it = net("u8")

    def run(*args, binary=None, io=None):
        return netrun("--retrieve_context", binary or it.binary, "--io", io or it.io, *args)

    return run


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "--retrieve_context"),
        (["--no_such_flag"], "--no_such_flag"),
        (["--retrieve_context", "nowhere.bin", "--load_only"], "nowhere.bin"),
        (["--retrieve_context", __file__], "--input_list"),
        (["--retrieve_context", __file__, "--input_list", "a", "--load_only"], "--input_list"),
        (["--retrieve_context", __file__, "--io", "nowhere.json", "--load_only"], "nowhere.json"),
        (["--retrieve_context", __file__, "--num_inferences", "0"], "at least 1"),
        (["--probe", "--backend", "/no/lib.so"], "/no/lib.so"),
    ],
)
def test_usage(args, said, netrun):
    done = netrun(*args)
    assert done.code == 2
    assert said in done.error


@pytest.mark.parametrize(
    ("values", "code", "said"),
    [
        (np.zeros(191, np.float32), 4, "expected 768 bytes"),
        (np.zeros(192, np.uint8), 4, "got 192 (it fits with --use_native_input_files)"),
        (np.full(192, np.nan, np.float32), 4, "192 NaN"),
    ],
)
def test_an_input_that_does_not_fit(*, values, code, said, u8, write_list, tmp_path):
    done = u8("--input_list", write_list([{"image": values}]), "--timings", "t.json")
    assert done.code == code
    assert said in done.error
    assert "in_0_0.raw" in done.error
    assert not list((tmp_path / "output").iterdir())
    assert not (tmp_path / "t.json").exists()


def test_a_sample_that_does_not_fit_leaves_no_results_of_those_before(u8, write_list, tmp_path):
    good = np.zeros(192, np.float32)
    bad = good.copy()
    bad[7] = np.nan
    done = u8("--input_list", write_list([{"image": good}, {"image": bad}]))
    assert done.code == 4
    assert "1 NaN" in done.error
    assert "in_1_0.raw" in done.error
    assert not list((tmp_path / "output").iterdir())


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", 2, "no inputs"),
        ("picture:=x.raw\n", 4, "image"),
        ("a.raw b.raw\n", 4, "2 files"),
        ("image:=missing.raw\n", 4, "missing.raw"),
        ("%other\nimage:=x.raw\n", 2, "other"),
        ("image:=x.raw\n%out\n", 2, "line 2"),
    ],
)
def test_an_input_list_that_is_no_good(text, code, said, u8, tmp_path):
    (tmp_path / "list.txt").write_text(text)
    (tmp_path / "x.raw").write_bytes(bytes(768))
    done = u8("--input_list", "list.txt")
    assert done.code == code
    assert said in done.error


def test_stale_results_are_gone_even_if_the_run_fails(u8, write_list, tmp_path):
    stale = [tmp_path / "output/Result_0", tmp_path / "output/Result_7"]
    for directory in stale:
        directory.mkdir(parents=True)
        (directory / "out.raw").write_bytes(bytes(1024))
    (tmp_path / "output/notes.txt").write_text("mine")
    assert u8("--input_list", "nowhere.txt").code == 2
    assert [path.name for path in (tmp_path / "output").iterdir()] == ["notes.txt"]
    stale[1].mkdir()
    assert u8("--input_list", write_list([{"image": np.zeros(192, np.float32)}])).code == 0
    found = sorted(path.name for path in (tmp_path / "output").iterdir())
    assert found == ["Result_0", "notes.txt"]


@pytest.mark.parametrize("size", [30_000, 100, 0])
def test_a_truncated_binary_is_refused(size, u8, net, tmp_path):
    cut = tmp_path / "cut.bin"
    cut.write_bytes(net("u8").binary.read_bytes()[:size])
    done = u8("--load_only", binary=cut)
    assert done.code == 3
    assert "refused the context" in done.error
    assert "cut.bin" in done.error


def test_a_crash_of_the_runtime_is_told(u8, nets_dir, tmp_path):
    private = tmp_path / "tmp"
    private.mkdir()
    done = u8("--load_only", binary=nets_dir / "shared.bin")
    assert done.code == 128 + signal.SIGSEGV
    assert "crashed (SIGSEGV) while loading the context" in done.error
    assert "shared.bin" in done.error
    assert "on the emulator" in done.error


def test_names_that_are_not_the_binarys_are_no_way_to_bind(u8, net, write_list, tmp_path):
    graph = json.loads(net("u8").io.read_text())
    graph["inputs"][0]["name"] = "picture"
    (tmp_path / "io.json").write_text(json.dumps(graph))
    listed = write_list([{"picture": np.zeros(192, np.float32)}])
    done = u8("--input_list", listed, "--log_level", "error", io=tmp_path / "io.json")
    assert done.code == 4
    assert "names" in done.error
    assert not list((tmp_path / "output").iterdir())


def test_a_shape_that_is_not_the_binarys(u8, net, write_list, tmp_path):
    graph = json.loads(net("u8").io.read_text())
    graph["inputs"][0]["shape"] = [1, 3, 8, 9]
    (tmp_path / "io.json").write_text(json.dumps(graph))
    done = u8(
        "--input_list", write_list([{"image": np.zeros(216, np.float32)}]),
        io=tmp_path / "io.json",
    )  # fmt: skip
    assert done.code == 4
    assert "data size does not match" in done.error


def test_the_time_limit(u8, write_list, tmp_path):
    listed = write_list([{"image": np.zeros(192, np.float32)}])
    started = time.monotonic()
    done = u8("--input_list", listed, "--num_inferences", 10_000_000, "--time_limit", 1.5)
    assert done.code == 5
    assert "time limit of 1.5 s" in done.error
    assert time.monotonic() - started < 15
    assert not list((tmp_path / "output").iterdir())


def is_dead(child: str) -> bool:
    """Gone, or a zombie that whoever adopted it has not buried yet."""
    try:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_runtime_does_not_outlive_netrun(number, net, write_list, tmp_path):
    it = net("u8")
    listed = write_list([{"image": np.zeros(192, np.float32)}])
    root = str(Path(pytest_qnnctx.__file__).parent.parent)
    command = ["-m", "pytest_qnnctx.netrun", "--retrieve_context", it.binary, "--io", it.io]
    command += ["--input_list", listed, "--num_inferences", "10000000"]
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    result = tmp_path / "output/Result_0/out.raw"
    deadline = time.monotonic() + 60
    while not result.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (child,) = children.read_text().split()
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    deadline = time.monotonic() + 10
    while not is_dead(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if number == signal.SIGTERM:
        assert process.returncode == 128 + signal.SIGTERM
        assert "stopped by SIGTERM while running the graph" in said
        assert not list(tmp_path.glob("netrun-*"))
        assert not list((tmp_path / "output").iterdir())
