from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.build.qairt.backend_config import (
    CompileOptions,
    compile_options,
    graph_name,
    inner_config,
    outer_config,
)
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Target

QCS6490 = Target("QCS6490", "v68", 93, 2, has_float=False)
OPTIONS = CompileOptions("v68", 93, 2)


def test_what_is_asked_follows_the_target():
    assert compile_options(QCS6490).asked() == {
        "htp_arch": "v68",
        "soc_model": 93,
        "vtcm_mb": 2,
        "optimization_level": 3,
    }


def test_an_unknown_soc_is_a_usage_error_that_names_those_that_are_known():
    with pytest.raises(UsageError, match="XYZ1"):
        compile_options(Target("XYZ1", "v68"))


def test_the_graph_block_binds_to_the_dlcs_base_name():
    config = json.loads(inner_config("/work/quantized/net_1.dlc", OPTIONS, "2.45.40.260406"))
    assert config["graphs"] == [{"graph_names": ["net_1"], "O": 3, "vtcm_mb": 2}]


def test_the_name_that_the_dlc_itself_says_wins():
    config = json.loads(inner_config("/w/net.dlc", OPTIONS, "2.45.40.260406", graphs=["other"]))
    assert config["graphs"][0]["graph_names"] == ["other"]


@pytest.mark.parametrize(
    ("version", "is_list", "soc"),
    [
        ("2.18.0.240101", False, "soc_id"),
        ("2.37.1.250807093845", True, "soc_model"),
        ("2.45.40.260406", True, "soc_model"),
    ],
)
def test_each_version_gets_the_form_that_it_reads(version, is_list, soc):
    config = json.loads(inner_config("/w/net.dlc", OPTIONS, version))
    assert isinstance(config["graphs"], list) is is_list
    assert config["devices"] == [{"device_id": 0, soc: 93, "dsp_arch": "v68"}]


def test_a_part_without_float_and_weight_sharing_is_asked_for_neither():
    text = inner_config("/w/net.dlc", OPTIONS, "2.45.40.260406")
    assert "fp16_relaxed_precision" not in text
    assert "weight_sharing" not in text


def test_hvx_threads_are_asked_for_where_they_are_given():
    options = CompileOptions("v68", 93, 2, hvx_threads=4)
    config = json.loads(inner_config("/w/net.dlc", options, "2.45.40.260406"))
    assert config["graphs"][0]["hvx_threads"] == 4
    assert options.asked()["hvx_threads"] == 4


def test_the_outer_file_takes_absolute_paths_only():
    outer = json.loads(outer_config("/sdk/lib/libExt.so", "/work/htp.json"))
    assert outer["backend_extensions"]["config_file_path"] == "/work/htp.json"
    with pytest.raises(UsageError, match=r"htp\.json"):
        outer_config("/sdk/lib/libExt.so", "htp.json")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=150))
def test_a_graphs_name_is_one_that_no_tool_changes(model):
    name = graph_name(model)
    assert name[0].isascii() and name[0].isalpha()
    assert all(c.isascii() and (c.isalnum() or c == "_") for c in name)
    assert len(name) <= 110
    assert graph_name(name) == name


def test_a_usual_name_stays_as_it_is():
    assert graph_name("classifier_v2") == "classifier_v2"
    assert graph_name("2nd model.v1") == "m_2nd_model_v1"
