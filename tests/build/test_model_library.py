"""The cross-compiled model library: found beside the ONNX, and for the board's processor."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.build.onboard.model_library import find_model_library
from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.model import Model

AARCH64, X86_64, ARM = 183, 62, 40
NET = {
    "graph": {
        "tensors": {"x": {"data_type": 1032, "dims": [1, 3], "type": 0}},
        "nodes": {"n": {"type": "Relu", "input_names": ["x"], "output_names": ["y"]}},
    }
}


def elf(machine: int = AARCH64, *, big_endian: bool = False) -> bytes:
    """The first 64 bytes of a 64-bit shared library."""
    order = ">" if big_endian else "<"
    ident = b"\x7fELF" + bytes([2, 2 if big_endian else 1, 1]) + bytes(9)
    return (ident + struct.pack(f"{order}HHI", 3, machine, 1)).ljust(64, b"\0")


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def model(tmp_path) -> Model:
    """Its ONNX is not read here."""
    return Model(write(tmp_path / "net.onnx", b"onnx"), name="the net")


@pytest.mark.parametrize(
    "place",
    ["libnet.so", "net.so", "aarch64-oe-linux-gcc11.2/libnet.so", "out/aarch64-x/libnet.so"],
)
def test_it_is_found_beside_the_onnx_and_where_the_sdk_puts_it(model, place):
    path = write(model.path.parent / place, elf())
    found = find_model_library(model)
    assert found.path == path
    assert found.graph_name == "net"  # the file's, as the converter calls it
    assert (found.net_json, found.net) == (None, None)


def test_libraries_for_other_machines_in_folders_of_their_own_are_no_rivals(model):
    folder = model.path.parent
    path = write(folder / "aarch64-oe-linux-gcc11.2/libnet.so", elf())
    write(folder / "x86_64-linux-clang/libnet.so", elf(X86_64))
    write(folder / "hexagon-v68/libnet.so", elf(164))
    write(folder / "libnets.so", elf())
    assert find_model_library(model).path == path


def test_a_link_to_the_same_library_is_no_second_one(model):
    path = write(model.path.parent / "aarch64-android/libnet.so", elf())
    (model.path.parent / "libnet.so").symlink_to(path)
    assert find_model_library(model).path == path


@pytest.mark.parametrize("name", ["net[1]", "net (copy)", "net*", "a?b"])
def test_a_name_is_no_pattern(tmp_path, name):
    model = Model(write(tmp_path / f"{name}.onnx", b"onnx"))
    path = write(tmp_path / f"lib{name}.so", elf())
    write(tmp_path / "libnet1.so", elf())
    assert find_model_library(model).path == path


def test_none_says_what_makes_one(model):
    (model.path.parent / "libnet.so").mkdir()  # a directory is none
    with pytest.raises(UsageError, match=r"there is no libnet\.so beside") as caught:
        find_model_library(model)
    assert "qnn-model-lib-generator" in caught.value.next_step


def test_two_are_named(model):
    folder = model.path.parent
    paths = [write(folder / place / "libnet.so", elf()) for place in ("aarch64-a", "aarch64-b")]
    with pytest.raises(UsageError, match="'the net' has 2 model libraries") as caught:
        find_model_library(model)
    assert all(str(path) in caught.value.what for path in paths)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (elf(X86_64), "is for x86-64, not for aarch64"),
        (elf(ARM), "is for arm, not for aarch64"),
        (elf(243), "is for machine 243"),
        (elf(X86_64, big_endian=True), "is for x86-64"),
        (b"", "is no shared library"),
        (b"\x7fELF\2\1", "is no shared library"),
        (b"PK\3\4" + bytes(100), "is no shared library"),
    ],
)
def test_what_no_board_could_load_is_refused(model, content, said):
    path = write(model.path.parent / "libnet.so", content)
    with pytest.raises(UsageError) as caught:
        find_model_library(model)
    assert said in caught.value.what
    assert str(path) in caught.value.what
    assert "qnn-model-lib-generator" in caught.value.next_step


def test_a_git_lfs_pointer_is_named(model):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    write(model.path.parent / "libnet.so", pointer)
    with pytest.raises(InfrastructureError, match="is a Git LFS pointer") as caught:
        find_model_library(model)
    assert "git lfs pull" in caught.value.next_step


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\x7fELF" + tail))
def test_any_bytes_are_a_library_or_an_error_that_names_them(content):
    with tempfile.TemporaryDirectory() as folder:
        model = Model(write(Path(folder) / "net.onnx", b"onnx"))
        write(Path(folder) / "libnet.so", content)
        try:
            found = find_model_library(model)
        except (UsageError, InfrastructureError) as error:
            assert "libnet.so" in error.what
        else:
            assert found.path.read_bytes()[:4] == b"\x7fELF"


# --- what the converter says that is in it ----------------------------------------------------


@pytest.mark.parametrize("place", ["net_net.json", "aarch64-x/net_net.json"])
def test_the_converters_json_is_read(model, place):
    write(model.path.parent / "aarch64-x/libnet.so", elf())
    path = write(model.path.parent / place, json.dumps(NET).encode())
    found = find_model_library(model)
    assert found.net_json == path
    assert found.net is not None
    assert list(found.net.tensors) == ["x"]


def test_the_json_beside_the_library_is_the_librarys(model):
    write(model.path.parent / "aarch64-x/libnet.so", elf())
    write(model.path.parent / "net_net.json", b"{}")
    path = write(model.path.parent / "aarch64-x/net_net.json", json.dumps(NET).encode())
    assert find_model_library(model).net_json == path


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"{}", b'{"graph": 1}', b"\xff\xfe", b"[" * 100_000),
        b'{"graph": {"nodes": {}, "tensors": {}}}',  # no op at all is no evidence of none in float
    ],
)
def test_a_json_of_another_form_tells_nothing(model, content):
    write(model.path.parent / "libnet.so", elf())
    path = write(model.path.parent / "net_net.json", content)
    found = find_model_library(model)
    assert (found.net_json, found.net) == (path, None)
