"""From what was found to a BinaryInfo: nothing is known unless all that is said agrees."""

from __future__ import annotations

import pytest

from pytest_qnnctx.binary.assemble import assemble
from pytest_qnnctx.binary.child_process import ChildReport

TENSOR = {"name": "x", "data_type": 0x0408, "shape": [1, 2], "scale": 0.5, "offset": -3}
NUMBERS = {"spill_fill_bytes": 0, "vtcm_bytes": 1, "optimization_level": 3, "hvx_threads": 4}
GRAPH = {"name": "g", "inputs": [TENSOR], "outputs": [TENSOR], **NUMBERS}


def metadata(**changes) -> dict:
    return {
        "info_version": 3,
        "backend_id": 6,
        "build_id": "v2.51.0.260929181845",
        "soc_model": 93,
        "dsp_arch": 68,
        "graphs": [GRAPH],
        **changes,
    }


def options(arch=("68",), soc=("QCS6490",), vtcm=("2097152",), **changes) -> dict:
    return {
        "strings": 2,
        "values": {"arch": list(arch), "soc_type": list(soc), "vtcm_size": list(vtcm)},
        "build_ids": ["2.51.0.260929181845"],
        "complete": True,
        **changes,
    }


def info(metadata, options):
    return assemble(ChildReport(metadata, options), sha256="0", size_bytes=1, no_library="gone")


def test_all_that_agrees_is_known():
    found = info(metadata(), options())
    assert (found.htp_arch, found.soc, found.compiled_vtcm_bytes) == ("v68", "QCS6490", 2097152)
    assert (found.qnn_version, found.info_version) == ("2.51.0.260929181845", 3)
    assert found.unknown == {}


def test_qnn_2_22_has_an_architecture_and_no_soc():
    old = metadata(info_version=1, dsp_arch=None, soc_model=None, build_id="v2.22.0.240425")
    old["graphs"] = [{**GRAPH, **dict.fromkeys(NUMBERS), "spill_fill_bytes": 64}]
    found = info(old, options(arch=("73",), soc=(), vtcm=()))
    assert (found.htp_arch, found.soc, found.qnn_version) == ("v73", None, "2.22.0.240425")
    assert found.graphs[0].spill_fill_bytes == 64
    assert set(found.unknown) == {
        "soc",
        "compiled_vtcm_bytes",
        "graphs[0].vtcm_bytes",
        "graphs[0].optimization_level",
        "graphs[0].hvx_threads",
    }
    assert "V1" in found.unknown["graphs[0].vtcm_bytes"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"arch": ("68", "73")}, "htp_arch"),
        ({"arch": ("73",)}, "htp_arch"),
        ({"soc": ("QCS6490", "SM8550")}, "soc"),
        ({"vtcm": ("1", "2")}, "compiled_vtcm_bytes"),
    ],
)
def test_contradictions_leave_the_value_unknown(changes, field):
    found = info(metadata(), options(**changes))
    assert getattr(found, field) is None
    assert "contradicts" in found.unknown[field]


@pytest.mark.parametrize("arch", ["", "6", "abc", "68x", "6.8", "-68", "068"])
def test_an_architecture_that_is_none(arch):
    found = info(metadata(dsp_arch=None), options(arch=(arch,)))
    assert found.htp_arch is None
    assert found.unknown["htp_arch"]


@pytest.mark.parametrize("size", ["", "0", "-1", "2M", "1.5"])
def test_a_vtcm_size_that_is_none(size):
    found = info(metadata(), options(vtcm=(size,)))
    assert found.compiled_vtcm_bytes is None
    assert found.unknown["compiled_vtcm_bytes"]


def test_a_search_given_up_gives_nothing():
    found = info(metadata(), options(complete=False))
    assert (found.htp_arch, found.soc, found.compiled_vtcm_bytes) == (None, None, None)


def test_another_backend_is_named():
    found = info(
        metadata(backend_id=4, dsp_arch=None, soc_model=None), options((), (), (), strings=0)
    )
    assert found.htp_arch is None
    assert "backend 4" in found.unknown["htp_arch"]


def test_without_a_library():
    found = info(None, options())
    assert (found.htp_arch, found.qnn_version) == ("v68", "2.51.0.260929181845")
    assert found.unknown == {"graphs": "gone", "info_version": "gone"}


@pytest.mark.parametrize("ids", [[], ["2.47.0.1", "2.51.0.2"]])
def test_without_a_library_a_version_must_be_plain(ids):
    found = info(None, options(build_ids=ids))
    assert found.qnn_version is None
    assert "build id" in found.unknown["qnn_version"]


@pytest.mark.parametrize(
    ("build", "version"),
    [
        ("v2.51.0.260929181845", "2.51.0.260929181845"),
        ("2.47.0.26", "2.47.0.26"),
        ("v2.22.0.240425105218_92021", "2.22.0.240425105218"),
        ("", None),
        ("nightly", None),
    ],
)
def test_the_version_in_the_build_id(build, version):
    assert info(metadata(build_id=build), options()).qnn_version == version


def test_a_data_type_that_is_not_known_shows_its_number():
    graph = {**GRAPH, "inputs": [{**TENSOR, "data_type": 0x0999}]}
    found = info(metadata(graphs=[graph]), options())
    assert found.graphs[0].inputs[0].dtype == "0x0999"
    assert found.graphs[0].outputs[0].dtype == "ufixed8"
