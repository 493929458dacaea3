"""The bundle: one file, always the same, that needs nothing of this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from pytest_qnnctx.netrun.bundle import write_bundle


def test_the_same_sources_give_the_same_bytes(tmp_path):
    one, other = write_bundle(tmp_path / "one.pyz"), write_bundle(tmp_path / "other.pyz")
    assert one.read_bytes() == other.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.pyz", "other.pyz"]


def test_it_runs_where_this_project_is_not(net, tmp_path):
    it = net("u8")
    inputs, outputs = it.samples[0]
    away = tmp_path / "away"
    away.mkdir()
    bundle = write_bundle(away / "netrun.pyz")
    (away / "x.raw").write_bytes(inputs["image"].tobytes())
    (away / "list.txt").write_text("x.raw\n")
    # A module of that name that cannot be imported: the project is as good as not installed.
    (away / "pytest_qnnctx.py").write_text("raise ImportError('not here')\n")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["PYTHONPATH"] = str(away)

    def run(*args, isolated=True):
        return subprocess.run(
            [sys.executable, *(["-I"] if isolated else []), str(bundle), *map(str, args)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=away,
            env=env,
        )

    args = ["--retrieve_context", it.binary, "--input_list", "list.txt"]
    args += ["--use_native_input_files", "--use_native_output_files"]
    done = run(*args, "--io", it.io)
    assert done.returncode == 0, done.stderr
    codes = np.frombuffer((away / "output/Result_0/out_native.raw").read_bytes(), np.uint8)
    assert np.abs(codes.astype(int) - outputs["out"].ravel().astype(int)).max() <= 1
    assert json.loads(run("--probe").stdout)["missing"] == []
    # Without the project there is nothing that could read the binary's metadata.
    done = run(*args, isolated=False)
    assert done.returncode == 2
    assert "netrun: error: without --io" in done.stderr


def test_a_python_without_the_runtime(net, tmp_path):
    it = net("u8")
    bundle = write_bundle(tmp_path / "netrun.pyz")
    # -S: no site-packages.
    command = [sys.executable, "-I", "-S", str(bundle)]
    probed = subprocess.run([*command, "--probe"], capture_output=True, text=True, check=True)
    assert "onnxruntime_qnn" in json.loads(probed.stdout)["missing"]
    done = subprocess.run(
        [*command, "--retrieve_context", it.binary, "--io", it.io, "--load_only"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 6
    assert "install onnxruntime-qnn" in done.stderr
