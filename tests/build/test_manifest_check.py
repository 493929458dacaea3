"""Whether anything under the pins changed, file by file."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from pin_samples import BINARY, manifest_of, pointer

from pytest_qnnctx.build.pins.file_hashes import HashMemory
from pytest_qnnctx.build.pins.manifest_check import check_manifest
from pytest_qnnctx.errors import InfrastructureError


@pytest.fixture
def manifest(tmp_path):
    """Two models, their files, and a directory with their binaries."""
    made = manifest_of(tmp_path, "net", "other", store="binaries")
    (tmp_path / "binaries").mkdir()
    for name in ("net.bin", "other.bin"):
        (tmp_path / "binaries" / name).write_bytes(BINARY)
    return made


def drifts(manifest):
    found = check_manifest(manifest, HashMemory(manifest.folder / "cache" / "hashes.json"))
    return [(drift.kind, drift.file, drift.message) for drift in found]


def test_nothing_changed(manifest):
    assert drifts(manifest) == []


def test_a_changed_source_is_named_with_both_hashes(manifest, tmp_path):
    pinned = manifest.pins["net for QCS6490/v68"].sources["onnx"].sha256
    (tmp_path / "models" / "net.onnx").write_bytes(b"a new graph")
    ((kind, file, message),) = drifts(manifest)
    assert (kind, file) == ("source_changed", "models/net.onnx")
    assert message.startswith(f"net for QCS6490/v68: onnx models/net.onnx changed: {pinned[:12]}")


def test_a_change_that_keeps_size_and_time_is_seen_by_a_warm_memory(manifest, tmp_path):
    assert drifts(manifest) == []
    path = tmp_path / "models" / "net.onnx"
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [kind for kind, _, _ in drifts(manifest)] == ["source_changed"]


def test_what_is_missing(manifest, tmp_path):
    (tmp_path / "models" / "other.encodings").unlink()
    (tmp_path / "binaries" / "net.bin").unlink()
    assert [(kind, file) for kind, file, _ in drifts(manifest)] == [
        ("binary_missing", "net.bin"),
        ("source_missing", "models/other.encodings"),
    ]


def test_a_changed_binary(manifest, tmp_path):
    (tmp_path / "binaries" / "net.bin").write_bytes(BINARY[:-1])
    assert [(kind, file) for kind, file, _ in drifts(manifest)] == [("binary_changed", "net.bin")]


def test_pointers_are_named(manifest, tmp_path):
    onnx, binary = tmp_path / "models" / "net.onnx", tmp_path / "binaries" / "net.bin"
    onnx.write_bytes(pointer(onnx.read_bytes()))
    binary.write_bytes(pointer(BINARY))
    found = drifts(manifest)
    assert [kind for kind, _, _ in found] == ["source_lfs_pointer", "binary_lfs_pointer"]
    assert all("git lfs pull" in message for _, _, message in found)


def test_a_pointer_to_something_else_is_a_change(manifest, tmp_path):
    (tmp_path / "models" / "net.onnx").write_bytes(pointer(b"a new graph"))
    ((kind, _, message),) = drifts(manifest)
    assert kind == "source_changed"
    assert "LFS" in message


def test_binaries_elsewhere_are_not_looked_at(manifest, tmp_path):
    (tmp_path / "binaries" / "net.bin").unlink()
    assert drifts(replace(manifest, store=None)) == []
    assert drifts(manifest.with_store("https://nowhere.invalid/x")) == []


def test_a_file_that_cannot_be_read_is_no_drift(manifest, tmp_path):
    path = tmp_path / "models" / "net.onnx"
    path.unlink()
    path.mkdir()
    with pytest.raises(InfrastructureError, match=r"net\.onnx"):
        drifts(manifest)
