"""The generator on the board, with a model library of the classic route."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from standin_bench import GENERATOR, Bench

from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.build.compiled_graph import parse_compiled_graph


def on_board(bench: Bench, library: Path, *more: object, libraries: str | None = None):
    libs = bench.sdk / "lib/aarch64-oe-linux-gcc11.2"
    tool = bench.sdk / "bin/aarch64-oe-linux-gcc11.2" / GENERATOR
    flags = ["--model", library, "--backend", libs / "libQnnHtp.so", "--output_dir", "out"]
    path = str(libs) if libraries is None else libraries
    return bench.shell(
        shlex.join(map(str, [tool, *flags, "--binary_file", "net", *more])), LD_LIBRARY_PATH=path
    )


def board_config(bench: Bench, graph: str) -> Path:
    bench.configure(graph)
    libs = bench.sdk / "lib/aarch64-oe-linux-gcc11.2"
    extensions = {"shared_library_path": str(libs / "libQnnHtpNetRunExtensions.so")}
    extensions["config_file_path"] = "htp.json"
    path = bench.work / "config.json"
    path.write_text(json.dumps({"backend_extensions": extensions}))
    return path


def test_a_model_library_is_compiled_on_the_board(bench, library):
    assert library.name == "libnet.so"
    assert library.read_bytes()[:4] == b"\x7fELF"
    net = parse_compiled_graph(json.loads((library.parent / "net_net.json").read_text()))
    assert net.tensors["x"].scale == pytest.approx(0.01)
    done = on_board(bench, library, "--config_file", board_config(bench, "net"))
    assert done.returncode == 0, done.stdout
    (graph,) = read_binary(bench.binary).graphs
    assert (graph.name, graph.optimization_level) == ("net", 3)


def test_a_model_library_with_another_graph_name_is_refused(bench, library):
    done = on_board(bench, library, "--config_file", board_config(bench, "other"))
    assert done.returncode == 14
    assert "unable to find graphName:other" in done.stdout
    assert "Graph Compose failure" in done.stdout


def test_the_board_needs_its_library_path_and_its_own_machine(bench, library, tmp_path):
    assert on_board(bench, library, libraries="").returncode == 1
    foreign = tmp_path / "libforeign.so"
    data = bytearray(library.read_bytes())
    data[18] = 62
    foreign.write_bytes(data)
    assert "wrong machine 62" in on_board(bench, foreign).stdout
