"""The stand-in SDK does what it says: flags, environment, options, real binaries."""

from __future__ import annotations

import shlex

import numpy as np
import pytest
from standin_bench import (
    CONVERTER,
    GENERATOR,
    INFO,
    QUANTIZER,
    V218,
    V237,
    V245,
    Bench,
    make_bench,
)
from standin_releases import RELEASES, release
from standin_sdk import make_sdk, runs, set_quirks

from pytest_qnnctx.binary.reader import read_binary

# --- the way that goes well ---


def test_the_three_stages_make_a_real_binary(quantized, bench):
    done = bench.generate("--config_file", bench.configure())
    assert done.returncode == 0, done.stdout + done.stderr
    info = read_binary(bench.binary)
    assert (info.htp_arch, info.soc, info.qnn_version) == ("v68", "QCS6490", V237)
    (graph,) = info.graphs
    assert (graph.name, graph.optimization_level, graph.vtcm_bytes) == ("net", 3, 2 << 20)
    (tensor,) = graph.inputs
    assert (tensor.name, tensor.dtype, tensor.shape) == ("x", "ufixed8", (1, 3, 8, 8))
    assert tensor.scale == pytest.approx(0.01)
    assert f"\nspill_bytes={graph.spill_fill_bytes}\n" in done.stdout
    stages = [line for line in done.stdout.splitlines() if line.startswith("Starting stage: ")]
    assert stages[0].endswith("Graph Preparation Initializing")
    assert stages[-1].endswith("Completion")
    assert [run["tool"] for run in runs(quantized.sdk)] == [CONVERTER, QUANTIZER]


def test_the_newer_version_builds_too_and_signs_with_its_own_id(tmp_path):
    bench = make_bench(tmp_path, V245)
    assert bench.convert("--quantization_overrides", "net.encodings").returncode == 0
    assert bench.quantize("--enable_float_fallback").returncode == 0
    assert bench.generate("--config_file", bench.configure()).returncode == 0
    assert read_binary(bench.binary).qnn_version == release(V245).build_id


def test_calibration_quantizes_what_has_no_encodings(tmp_path):
    bench = make_bench(tmp_path)
    random = np.random.default_rng(0)
    for index in range(2):
        random.uniform(0, 1, (1, 3, 8, 8)).astype(np.float32).tofile(bench.work / f"{index}.raw")
    (bench.work / "list.txt").write_text("x:=0.raw\nx:=1.raw\n")
    assert bench.convert().returncode == 0
    done = bench.quantize("--input_list", "list.txt")
    assert done.returncode == 0, done.stderr
    assert "uFxp_8" in bench.run(INFO, "-i", "net_q.dlc").stdout


def test_dlc_info_prints_types_and_encodings(quantized):
    text = quantized.run(INFO, "-i", "net_q.dlc").stdout
    assert "Info of graph: net\n" in text
    tensor = "x (data type: uFxp_8; tensor dimension: [1,3,8,8]; tensor type: APP_WRITE) [NW Input]"
    assert tensor in text
    assert "r encoding : bitwidth 8, min 0.0000" in text
    assert "w1 (data type: sFxp_8; tensor dimension: [4,3,3,3]; tensor type: STATIC)" in text
    assert "Float_32" not in text
    before = quantized.run(INFO, "-i", "net.dlc").stdout
    assert "No encoding info for this tensor" in before
    assert "uFxp" not in before


# --- flags ---


@pytest.mark.parametrize(
    ("version", "tool", "flag", "there"),
    [
        (V237, QUANTIZER, "--act_bw", True),
        (V237, QUANTIZER, "--act_bitwidth", False),
        (V245, QUANTIZER, "--act_bitwidth", True),
        (V245, QUANTIZER, "--float_fallback", False),
        (V218, CONVERTER, "--input_dim", True),
        (V237, GENERATOR, "--dlc_path", True),
    ],
)
def test_help_names_what_the_version_takes_and_the_rest_is_refused(
    tmp_path, version, tool, flag, there
):
    bench = Bench(make_sdk(tmp_path / version, version), tmp_path)
    text = bench.run(tool, "--help").stdout
    assert (flag in text.replace(",", " ").split()) is there
    if not there:
        assert bench.run(tool, flag, "8").returncode != 0
    assert bench.run(tool, "--no_such_flag").returncode != 0
    assert bench.run(GENERATOR, "--version").stdout.splitlines()[1] == (
        f"QNN SDK v{release(version).build_id}"
    )
    assert "\nversion: " in (bench.sdk / "sdk.yaml").read_text()


def test_the_newer_quantizer_wants_one_of_two(tmp_path):
    bench = make_bench(tmp_path, V245)
    bench.convert("--quantization_overrides", "net.encodings")
    for flags in ((), ("--input_list", "x.txt", "--enable_float_fallback")):
        done = bench.quantize(*flags)
        assert done.returncode == 1
        assert "mutually exclusive" in done.stderr


# --- the environment ---


def test_without_envsetup_the_converters_lack_their_package(bench):
    tools = bench.sdk / "bin/x86_64-linux-clang"
    done = bench.shell(shlex.join([str(tools / CONVERTER), "--help"]))
    assert done.returncode == 1
    assert "No module named 'qti'" in done.stderr


@pytest.mark.parametrize("libraries", ["", "/of/an/esdk:{own}"])
def test_wrong_library_path_ends_well_and_makes_nothing(bench, libraries):
    own = bench.sdk / "lib/x86_64-linux-clang"
    tool = bench.sdk / "bin/x86_64-linux-clang" / GENERATOR
    flags = ["--model", own / "libQnnModelDlc.so", "--backend", own / "libQnnHtp.so"]
    flags += ["--dlc_path", "net_q.dlc", "--binary_file", "net", "--output_dir", "out"]
    done = bench.shell(
        shlex.join(map(str, [tool, *flags])), LD_LIBRARY_PATH=libraries.format(own=own)
    )
    assert done.returncode == 0
    assert not bench.binary.exists()


def test_envsetup_is_for_bash_and_for_sourcing(bench):
    script = shlex.quote(str(bench.sdk / "bin/envsetup.sh"))
    assert bench.shell(f"sh -c '. \"$1\"' sh {script} && echo set; true").stdout.strip() != "set"
    assert "should be run with 'source'" in bench.shell(f"bash {script}").stdout
    said = bench.shell(f"source {script}; command -v {QUANTIZER}").stdout
    assert "[INFO] AISW SDK environment set" in said
    assert str(bench.sdk / "bin/x86_64-linux-clang") in said
    set_quirks(bench.sdk, ["cd"])
    assert bench.shell(f"source {script} >/dev/null; pwd").stdout.strip() == str(bench.sdk / "bin")


# --- configuration ---


def test_graph_names_that_do_not_match_are_silent_and_cost_all_options(bench):
    done = bench.generate("--config_file", bench.configure("net_quantized"))
    assert done.returncode == 0
    (graph,) = read_binary(bench.binary).graphs
    assert (graph.optimization_level, graph.vtcm_bytes, graph.hvx_threads) == (0, 4 << 20, 0)
    assert "graph_names" not in done.stdout + done.stderr
    assert read_binary(bench.binary).soc == "QCS6490"


def test_options_can_be_ignored_one_by_one(bench):
    set_quirks(bench.sdk, {"ignore_vtcm_mb": True, "soc_key": "soc_id", "invalid_key_error": True})
    done = bench.generate("--config_file", bench.configure())
    info = read_binary(bench.binary)
    assert (info.graphs[0].vtcm_bytes, info.graphs[0].optimization_level) == (4 << 20, 3)
    assert info.soc != "QCS6490"
    assert "Invalid key: devices/0/soc_model" in done.stdout


def test_an_old_version_takes_one_graph_object_only(bench):
    set_quirks(bench.sdk, graphs_form="object")
    bench.generate("--config_file", bench.configure())
    assert read_binary(bench.binary).graphs[0].optimization_level == 0
    assert not RELEASES[V218].graphs_are_a_list


def test_a_kernel_soc_id_creates_no_device(bench):
    config = bench.configure()
    text = (bench.work / "htp.json").read_text()
    (bench.work / "htp.json").write_text(text.replace("93", "498"))
    done = bench.generate("--config_file", config)
    assert done.returncode == 11
    assert "Unknown config socModel" in done.stdout
