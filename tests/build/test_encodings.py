from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_qnnctx.build.quantize.encodings import VERSIONS, parse_encodings
from pytest_qnnctx.errors import ProductFailure, UsageError

AIMET = Path(__file__).parent.parent / "data" / "aimet"


def aimet_file(version: str) -> Path:
    return AIMET / f"tiny_{version}.encodings"


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "some.encodings"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("version", VERSIONS)
def test_the_three_versions_say_the_same(version):
    file = parse_encodings(aimet_file(version))
    assert file.version == version
    x, weight = file.entries["x"], file.entries["W"]
    assert (x.dtype, x.zero_point, x.per_channel) == ("uint16", (32575,), False)
    assert x.scale == (0.00011970659065202926,)
    assert (weight.dtype, len(weight.scale), set(weight.zero_point)) == ("int8", 16, {0})
    assert weight.scale[1] == 0.003087020944803953
    assert {"x", "r", "g", "y", "W", "W2"} <= set(file.entries)


def test_version_2_adds_the_int32_bias_and_names_axes():
    entries = parse_encodings(aimet_file("2.0.0")).entries
    assert (entries["B"].dtype, entries["B"].axis) == ("int32", 0)
    assert entries["W"].axis == 0


def test_version_061_takes_strings_and_booleans_for_is_symmetric(tmp_path):
    data = json.loads(aimet_file("0.6.1").read_text())
    for channel in data["param_encodings"]["W"]:
        channel["is_symmetric"] = True
    assert parse_encodings(write(tmp_path, data)).entries["W"].signed


def test_an_asymmetric_parameter_stays_unsigned(tmp_path):
    data = json.loads(aimet_file("1.0.0").read_text())
    data["param_encodings"][0].update(is_sym=False)
    entry = parse_encodings(write(tmp_path, data)).entries["W"]
    assert (entry.signed, entry.zero_point[0]) == (False, 128)


def test_strict_symmetry_is_symmetric_too(tmp_path):
    data = json.loads(aimet_file("1.0.0").read_text())
    data["param_encodings"][0].update(offset=[-127.0] * 16)
    entry = parse_encodings(write(tmp_path, data)).entries["W"]
    assert (entry.signed, set(entry.zero_point)) == (True, {0})


def test_range_without_scale(tmp_path):
    data = {
        "version": "0.6.1",
        "activation_encodings": {
            "x": [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "min": -1, "max": 1.55}]
        },
        "param_encodings": {},
    }
    entry = parse_encodings(write(tmp_path, data)).entries["x"]
    assert entry.scale[0] == pytest.approx(0.01)
    assert entry.zero_point == (100,)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (
            {
                "version": "0.6.1",
                "activation_encodings": {"x": [{"bitwidth": 16, "dtype": "float"}]},
                "param_encodings": {},
            },
            "float16",
        ),
        (
            {
                "version": "1.0.0",
                "activation_encodings": [{"name": "x", "bw": 32, "dtype": "FLOAT"}],
                "param_encodings": [],
            },
            "float32",
        ),
        ({"version": "2.0.0", "encodings": [{"name": "x", "output_dtype": "float16"}]}, "float16"),
    ],
)
def test_float_entries_are_kept_and_marked(tmp_path, data, dtype):
    entry = parse_encodings(write(tmp_path, data)).entries["x"]
    assert entry.is_float
    assert entry.dtype == dtype


def test_blockwise_entries_are_kept_and_marked(tmp_path):
    data = {
        "version": "2.0.0",
        "encodings": [
            {
                "name": "W",
                "output_dtype": "int4",
                "y_scale": [[0.1, 0.2], [0.3, 0.4]],
                "axis": 1,
                "block_size": 16,
            }
        ],
    }
    entry = parse_encodings(write(tmp_path, data)).entries["W"]
    assert entry.blockwise
    assert entry.scale == (0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "top level"),
        ('{"version": 1}', "this tool reads 0.6.1"),
        ('{"version": "3.0.0", "encodings": []}', "3.0.0"),
        ('{"version": "2.0.0"}', "encodings"),
        ('{"version": "2.0.0", "encodings": []}', "no encodings at all"),
        ('{"version": "0.6.1", "activation_encodings": [], "param_encodings": {}}', "an object"),
        ('{"version": "2.0.0", "version": "2.0.0", "encodings": []}', "twice"),
        ("[" * 100_000, "nested"),
        ('{"version": "2.0.0", "encodings": ' + "[" * 40 + "]" * 40 + "}", "nested"),
    ],
)
def test_content_that_is_no_encodings_file(tmp_path, content, said):
    path = write(tmp_path, content)
    with pytest.raises(ProductFailure, match=said) as caught:
        parse_encodings(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bw": "16"}, "bit width is '16'"),
        ({"bw": 0}, "bit width"),
        ({"bw": 64}, "bit width"),
        ({"dtype": "int"}, "dtype"),
        ({"enc_type": "PER_MOON"}, "enc_type"),
        ({"scale": [0.0]}, "greater than zero"),
        ({"scale": [-1.0]}, "greater than zero"),
        ({"scale": [float("nan")]}, "scale is nan"),
        ({"scale": [float("inf")]}, "scale is inf"),
        ({"scale": [1e-60]}, "32-bit float"),
        ({"scale": [1e300]}, "32-bit float"),
        ({"scale": [10**400]}, "too large"),
        ({"scale": ["0.1"]}, "not a number"),
        ({"scale": [True]}, "not a number"),
        ({"scale": 0.1}, "not a list"),
        ({"scale": []}, "not a list"),
        ({"scale": [0.1, 0.2], "offset": [0, 0]}, "PER_TENSOR"),
        ({"scale": [0.1, 0.2]}, "2 scales but 1 offsets"),
        ({"offset": [0.5]}, "whole"),
        ({"offset": [3]}, "zero or negative"),
        ({"offset": [-70000]}, "zero or negative"),
        ({"is_sym": "maybe"}, "neither true nor false"),
        ({"enc_type": "PER_BLOCK"}, "block_size"),
        ({"name": ""}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"name": "W"}, "two entries"),
    ],
)
def test_wrong_entries_are_named(tmp_path, change, said):
    data = json.loads(aimet_file("1.0.0").read_text())
    data["activation_encodings"][0].update(change)
    path = write(tmp_path, data)
    with pytest.raises(ProductFailure, match=said) as caught:
        parse_encodings(path)
    assert caught.value.findings[0].kind == "encoding_invalid"


def test_every_wrong_entry_is_reported(tmp_path):
    data = json.loads(aimet_file("2.0.0").read_text())
    for entry in data["encodings"][:3]:
        entry["y_scale"] = 0
    with pytest.raises(ProductFailure) as caught:
        parse_encodings(write(tmp_path, data))
    assert [finding.subject for finding in caught.value.findings] == ["'W'", "'B'", "'W2'"]


@pytest.mark.parametrize("path", ["absent.encodings", "."])
def test_a_path_that_is_no_file(tmp_path, path):
    with pytest.raises(UsageError, match="cannot read"):
        parse_encodings(tmp_path / path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_sentence(tmp_path, content):
    path = tmp_path / "any"
    path.write_bytes(content)
    with pytest.raises(ProductFailure):
        parse_encodings(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(VERSIONS), st.data())
def test_any_value_anywhere_parses_or_ends_in_a_sentence(tmp_path, version, data):
    """A real file with one value replaced: nothing but ProductFailure comes out, and what parses
    holds only usable numbers."""
    content = copy.deepcopy(json.loads(aimet_file(version).read_text()))
    place, key = content, None
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        parent, key = place, data.draw(st.sampled_from(list(keys)))
        place = parent[key]
        if data.draw(st.integers(0, 3)) == 0:
            break
    parent[key] = data.draw(json_values)
    try:
        file = parse_encodings(write(tmp_path, json.dumps(content)))
    except ProductFailure:
        return
    for entry in file.entries.values():
        assert entry.is_float or all(0 < scale < float("inf") for scale in entry.scale)
        assert len(entry.scale) == len(entry.zero_point)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.floats(1e-6, 1e3),
    st.integers(4, 16).flatmap(lambda bits: st.tuples(st.just(bits), st.integers(0, 2**bits - 1))),
)
def test_the_versions_agree_on_every_activation(tmp_path, scale, grid):
    bits, zero = grid
    first = {"bitwidth": bits, "dtype": "int", "is_symmetric": "False"}
    contents = [
        {
            "version": "0.6.1",
            "activation_encodings": {"x": [{**first, "scale": scale, "offset": -zero}]},
            "param_encodings": {},
        },
        {
            "version": "1.0.0",
            "activation_encodings": [
                {
                    "name": "x",
                    "bw": bits,
                    "dtype": "INT",
                    "enc_type": "PER_TENSOR",
                    "is_sym": False,
                    "scale": [scale],
                    "offset": [-zero],
                }
            ],
            "param_encodings": [],
        },
        {
            "version": "2.0.0",
            "encodings": [
                {
                    "name": "x",
                    "output_dtype": f"uint{bits}",
                    "y_scale": scale,
                    "y_zero_point": zero,
                }
            ],
        },
    ]
    entries = [parse_encodings(write(tmp_path, content)).entries["x"] for content in contents]
    grids = {(e.bits, e.scale, e.zero_point, e.signed) for e in entries}
    assert grids == {(bits, (scale,), (zero,), False)}
