from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qnnctx.build.qairt.flags import (
    CONVERTER,
    GENERATOR,
    QUANTIZER,
    ToolHelp,
    wants_one,
)
from pytest_qnnctx.build.qairt.plan import plan_flags
from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.model import Model

CONVERTER_HELP = "usage: qairt-converter --input_network N [--output_path O]\n"
CONVERTER_HELP += "  --quantization_overrides FILE, -q FILE\n"
GENERATOR_HELP = "--model FILE --backend FILE --dlc_path F --output_dir D --binary_file B"
GENERATOR_HELP += " --config_file F"
OLD = "--input_dlc --output_dlc --input_list FILE --float_fallback --act_bw --weight_bw --bias_bw"
NEW = """
  --input_dlc INPUT_DLC, -i INPUT_DLC
  --output_dlc OUTPUT_DLC
  --input_list LIST, -l LIST
        A list of raw files. --enable_float_fallback and --input_list are mutually
        exclusive options. One of them is mandatory.
  --enable_float_fallback
  --act_bitwidth N --weights_bitwidth N --bias_bitwidth N --use_per_channel_quantization
"""


def helps(quantizer: str, version: str = "2.37.1") -> dict[str, ToolHelp]:
    texts = {CONVERTER: CONVERTER_HELP, QUANTIZER: quantizer, GENERATOR: GENERATOR_HELP}
    return {tool: ToolHelp(tool, version, text) for tool, text in texts.items()}


def model(**more) -> Model:
    return Model(Path("net.onnx"), encodings=Path("net.encodings"), **more)


CALIBRATED = {"calibration": Path("inputs.npz")}


def test_each_versions_own_spelling_is_used():
    old = plan_flags(helps(OLD), model(**CALIBRATED), float_fallback=False).quantizer
    new = plan_flags(helps(NEW), model(**CALIBRATED), float_fallback=False).quantizer
    assert old["activation_bits"] == "--act_bw"
    assert new["activation_bits"] == "--act_bitwidth"
    assert old["weight_bits"] == "--weight_bw"
    assert new["weight_bits"] == "--weights_bitwidth"
    assert "per_channel" not in old
    assert new["per_channel"] == "--use_per_channel_quantization"


def test_nothing_is_left_in_float_unless_that_was_opted_in_to():
    assert "float_fallback" not in plan_flags(helps(OLD), model(), float_fallback=False).quantizer
    plan = plan_flags(helps(OLD), model(), float_fallback=True)
    assert plan.quantizer["float_fallback"] == "--float_fallback"
    assert [f.kind for f in plan.findings] == ["float_fallback_allowed"]


def test_a_flag_that_a_version_lacks_is_named_with_the_nearest_that_it_has():
    with pytest.raises(InfrastructureError) as caught:
        plan_flags(
            helps(OLD.replace("--input_list", "--input_lists")),
            model(**CALIBRATED),
            float_fallback=False,
        )
    text = str(caught.value)
    assert "qairt-quantizer of QAIRT 2.37.1 has no flag --input_list" in text
    assert "the nearest that it has is --input_lists" in text


def test_flags_that_will_not_be_used_are_not_asked_for():
    without = helps(OLD)
    without[CONVERTER] = ToolHelp(CONVERTER, "2", "--input_network --output_path")
    plan_flags(without, Model(Path("net.onnx")), float_fallback=False)
    with pytest.raises(InfrastructureError, match="--quantization_overrides"):
        plan_flags(without, model(), float_fallback=False)


def test_a_quantizer_that_demands_one_of_two_is_known_before_it_runs():
    assert plan_flags(helps(NEW), model(), float_fallback=False).calibration_missing
    assert not plan_flags(helps(OLD), model(), float_fallback=False).calibration_missing
    assert not plan_flags(helps(NEW), model(), float_fallback=True).calibration_missing
    given = plan_flags(helps(NEW), model(**CALIBRATED), float_fallback=False)
    assert not given.calibration_missing


def test_where_the_two_exclude_each_other_the_calibration_wins_and_is_named():
    plan = plan_flags(helps(NEW), model(**CALIBRATED), float_fallback=True)
    assert plan.calibrate
    assert not plan.float_fallback
    assert "float_fallback" not in plan.quantizer
    assert [f.kind for f in plan.findings] == ["float_fallback_unused"]
    both = plan_flags(helps(OLD), model(**CALIBRATED), float_fallback=True)
    assert {"float_fallback", "calibration"} <= set(both.quantizer)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("--a_float_fallback and --input_list are mutually exclusive. One of them is mandatory", 1),
        ("ERROR - either --input_list or --enable_float_fallback is required", 1),
        ("one of --input_list, --float_fallback is required", 1),
        ("--input_list FILE  --float_fallback  let ops stay float", 0),
        ("--model is required. one of these days: mandatory", 0),
        ("", 0),
    ],
)
def test_the_demand_is_recognised_in_help_and_log(text, wanted):
    assert wants_one(text) is bool(wanted)


def test_part_of_a_flag_is_no_flag():
    assert ToolHelp(QUANTIZER, "2", "--input_dlc_dir x--input_dlc").flags == {"--input_dlc_dir"}
