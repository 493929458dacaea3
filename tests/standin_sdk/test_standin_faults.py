"""The faults of SDKs that are reported, played by the stand-in SDK."""

from __future__ import annotations

import json
import shutil
import signal

import onnx
import pytest
from standin_bench import GENERATOR, INFO, encodings, make_bench, network
from standin_dlc import read_dlc
from standin_quirks import QUIRKS
from standin_sdk import runs, set_quirks

from pytest_qnnctx.binary.reader import read_binary

# --- how it fails ---


def test_an_op_without_encodings_stays_float_and_aborts_on_v68(bench):
    set_quirks(bench.sdk, drop_encodings=["r"])
    assert bench.quantize().returncode == 0
    assert "r (data type: Float_32;" in bench.run(INFO, "-i", "net_q.dlc").stdout
    done = bench.generate("--config_file", bench.configure())
    assert done.returncode in (134, -signal.SIGABRT)
    assert "has incorrect Value 68, expected >= 73." in done.stdout
    assert "htp op validator failed 3110" in done.stdout
    assert not bench.binary.exists()
    # The next architecture has floating point.
    set_quirks(bench.sdk, wrong_arch="v73")
    assert bench.generate("--config_file", bench.configure()).returncode == 0
    assert read_binary(bench.binary).htp_arch == "v73"


def test_the_converter_names_encodings_that_it_skips(bench):
    (bench.work / "net.encodings").write_text(json.dumps(encodings("gone")))
    done = bench.convert("--quantization_overrides", "net.encodings")
    assert "gone: not found in the graph" in done.stderr
    assert " - 235 - INFO - Processed 5 quantization encodings" in done.stderr
    assert "gone" not in json.dumps(read_dlc(bench.work / "net.dlc").note.overrides)
    set_quirks(bench.sdk, ["skips_silently"])
    assert "gone" not in bench.convert("--quantization_overrides", "net.encodings").stderr


def test_a_dynamic_input_is_refused_until_its_shape_is_given(bench):
    onnx.save(network("batch"), str(bench.work / "net.onnx"))
    (bench.work / "net.dlc").unlink()
    done = bench.convert()
    assert done.returncode == 1
    assert "Missing command line inputs for dynamic inputs ['x']" in done.stderr
    assert not (bench.work / "net.dlc").exists()
    assert bench.convert("--source_model_input_shape", "x", "1,3,8,8").returncode == 0


def test_the_quantizer_can_take_ranges_of_its_own(bench):
    set_quirks(bench.sdk, recompute_encodings=["r"])
    assert bench.quantize().returncode == 0
    text = bench.run(INFO, "-i", "net_q.dlc").stdout
    assert "r encoding : bitwidth 8, min 0.000000000000, max 3.1875" in text
    assert "x encoding : bitwidth 8, min 0.000000000000, max 2.5499" in text


def test_bin_is_always_appended(bench):
    assert bench.generate(name="net.bin").returncode == 0
    assert [path.name for path in (bench.work / "out").iterdir()] == ["net.bin.bin"]


def test_the_shim_can_be_missing(tmp_path, quantized):
    bench = make_bench(tmp_path, without=["libQnnModelDlc.so"])
    shutil.copy(quantized.work / "net_q.dlc", bench.work)
    done = bench.generate()
    assert done.returncode == 1
    assert "libQnnModelDlc.so: cannot open shared object file" in done.stdout


@pytest.mark.parametrize(
    ("quirks", "code", "text"),
    [
        ({"exit0_nothing": True}, 0, ""),
        ({"disk_full": [GENERATOR]}, 1, "No space left on device"),
        ({"licence": True}, 1, "License check failed"),
        ({"missing_libcxx": True}, 1, "libc++.so.1"),
        ({"not_executable": True}, 126, "Exec format error"),
        ({"signal": {GENERATOR: 9}}, 137, ""),
        ({"signal": {GENERATOR: 11}}, 139, ""),
        ({"op_too_big": True}, 1, "requires 0x2400000 bytes of TCM"),
        ({"memory_too_large": True}, 1, "limit is 2097152 KB"),
        ({"unsupported_op": "pool"}, 14, "Failed to validate op pool with error 0xc26"),
    ],
)
def test_quirks_of_the_generator(bench, quirks, code, text):
    set_quirks(bench.sdk, quirks)
    done = bench.generate()
    assert done.returncode in (code, 128 - code if code > 128 else code)
    assert text in done.stdout + done.stderr
    assert not bench.binary.exists()
    assert len(runs(bench.sdk, GENERATOR)) == 1


@pytest.mark.parametrize("quirk", ["converter_exits_early", "converter_copy_error"])
def test_quirks_of_the_converter(bench, quirk):
    set_quirks(bench.sdk, [quirk])
    (bench.work / "net.dlc").unlink()
    done = bench.convert()
    assert done.returncode == (quirk == "converter_copy_error")
    assert "Conversion complete!" not in done.stderr
    assert not (bench.work / "net.dlc").exists()


def test_a_binary_can_be_empty_or_cut(bench):
    set_quirks(bench.sdk, ["empty_binary"])
    assert bench.generate().returncode == 0
    assert bench.binary.stat().st_size == 0


def test_an_unknown_quirk_is_a_mistake_in_the_test(bench):
    with pytest.raises(ValueError, match="no_such_quirk"):
        set_quirks(bench.sdk, ["no_such_quirk"])
    assert all(QUIRKS.values())
