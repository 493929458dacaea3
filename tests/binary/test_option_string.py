"""Option strings: found anywhere in a file, and read by whole keys."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.binary.option_scan import CHUNK_BYTES, scan_options
from pytest_qnnctx.binary.option_string import (
    LONG_RUN,
    find_build_ids,
    may_hold_text,
    option_run,
    parse_options,
)

FILLER = ";".join(f"option_{index}={index}" for index in range(12))
LONG_FILLER = ";".join(f"option_{index}=some_value_{index}" for index in range(200))


def options(filler: str = FILLER, **values: str) -> bytes:
    """An option string with the given values in its middle."""
    middle = ";".join(f"{key}={value}" for key, value in values.items())
    return f"{filler};{middle};{filler};".encode()


def scan(data: bytes) -> dict:
    return scan_options(lambda offset, count: data[offset : offset + count], len(data))


V68 = {"soc_type": "QCS6490", "arch": "68", "vtcm_size": "2097152"}
V73 = {"soc_type": "SM8550", "arch": "73", "vtcm_size": "8388608"}


def test_the_three_values_are_read():
    assert parse_options(options(**V68)) == {key: (value,) for key, value in V68.items()}


@pytest.mark.parametrize(
    "trap", ["xarch=75", "min_arch=75", "02arch=75", "arch_min=75", "non_uniform_mem_arch=75"]
)
def test_only_a_whole_key_counts(trap):
    key, _, value = trap.partition("=")
    assert parse_options(options(**{key: value}, arch="68")) == {"arch": ("68",)}
    assert parse_options(options(arch="68", **{key: value})) == {"arch": ("68",)}
    assert parse_options(options(**{key: value})) is None


def test_a_key_that_is_there_twice_keeps_both_values():
    assert parse_options(options(arch="68") + b"arch=73;arch=68;") == {"arch": ("68", "73")}


@pytest.mark.parametrize("text", [b"arch=68;", b"soc_type=QCS6490;arch=68;vtcm_size=1", b"x", b""])
def test_a_few_words_are_no_option_string(text):
    assert parse_options(text) is None


names = st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=12)
values = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters=";"), max_size=8
)


@given(st.lists(st.tuples(names, values), min_size=8, max_size=40))
def test_every_whole_key_is_found_and_nothing_else(items):
    expected = {
        key: tuple(dict.fromkeys(value for name, value in items if name == key))
        for key in ("soc_type", "arch", "vtcm_size")
        if any(name == key for name, _ in items)
    }
    run = ";".join(f"{name}={value}" for name, value in items).encode()
    assert parse_options(run) == (expected if "arch" in expected else None)


def test_a_run_that_is_cut_at_the_window_loses_the_cut_items():
    run = b"min_arch=75;a=1;arch=68;b=2;soc_type=QCS6490"
    window = run[4:-4]
    at = window.index(b"arch=68")
    assert option_run(window, at, starts_file=False, ends_file=False)[0] == b"a=1;arch=68;b=2"
    assert option_run(window, at, starts_file=True, ends_file=True)[0] == window


def test_a_run_ends_where_text_ends():
    window = b"\x00\xffkey=1;arch=68;c=3\x00more=1"
    run, end = option_run(window, window.index(b"arch"), starts_file=False, ends_file=False)
    assert run == b"key=1;arch=68;c=3"
    assert window[end : end + 1] == b"\x00"


@given(
    st.binary(max_size=3 * LONG_RUN),
    st.integers(LONG_RUN, 3 * LONG_RUN),
    st.binary(max_size=3 * LONG_RUN),
)
def test_a_long_text_is_never_overlooked(before, length, after):
    assert may_hold_text(before + b"x" * length + after)


def test_weights_are_not_taken_for_text():
    assert not may_hold_text(bytes(range(256)) * 256)
    assert not may_hold_text(bytes(65536))


# Offsets around the borders of the chunks that the scan reads, in its head and past it.
borders = st.builds(
    lambda chunk, shift: max(0, chunk * CHUNK_BYTES + shift),
    st.sampled_from((0, 1, 15, 16, 17, 18, 19)),
    st.integers(-12_000, 12),
)
# Each example reads more than a megabyte.
few = settings(max_examples=30, deadline=None)


@few
@given(borders)
def test_a_string_is_found_across_the_borders_of_chunks(offset):
    data = bytes(offset) + options(LONG_FILLER, **V68) + bytes(70_000)
    found = scan(data)
    assert found["strings"] == 1
    assert found["values"] == {key: [value] for key, value in V68.items()}
    assert found["complete"]


@few
@given(borders)
def test_a_second_string_elsewhere_is_not_overlooked(offset):
    data = options(LONG_FILLER, **V68) + bytes(offset + 1) + options(LONG_FILLER, **V73)
    assert scan(data)["values"]["arch"] == ["68", "73"]


@few
@given(borders)
def test_short_strings_are_all_found(offset):
    """Where a file's strings are short, the cheap search would miss some of them."""
    data = options(**V68) + bytes(offset + 1) + options(**V73) + bytes(100)
    assert scan(data)["values"]["arch"] == ["68", "73"]


def test_a_single_short_string_far_away_is_found():
    assert scan(bytes(2_000_000) + options(arch="68"))["values"]["arch"] == ["68"]


def test_a_flood_of_candidates_is_given_up_and_said_so():
    def complete(count: int) -> bool:
        data = b"arch=68\x00" * count
        at = lambda offset, length: data[offset : offset + length]  # noqa: E731
        return scan_options(at, len(data), max_candidates=20)["complete"]

    assert complete(20)
    assert not complete(21)


def test_build_ids_are_told_from_log_lines():
    assert find_build_ids(b"\x15\x00\x00\x00v2.51.0.260929181845\x00") == {"2.51.0.260929181845"}
    assert find_build_ids(b"\x07\x00Vrv2.47.0.26060111\x00") == {"2.47.0.26060111"}
    assert find_build_ids(b"built with v2.51.0.260929181845\n") == set()
    assert find_build_ids(b"\nv2.51.0.260929181845\n") == set()


def test_build_ids_beside_a_string_count():
    data = bytes(2_000_000) + b"Vrv2.51.0.260929181845\x00\x00" + options(LONG_FILLER, **V68)
    assert scan(data)["build_ids"] == ["2.51.0.260929181845"]
