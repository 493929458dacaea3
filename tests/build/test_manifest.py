"""The manifest: read strictly, written so that its diff can be read, changed without losses."""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pin_samples import BINARY, V68, manifest_of, model_in, pin_of, pointer, provenance

from pytest_qnnctx.build.pins.manifest import (
    Manifest,
    change_manifest,
    read_manifest,
    write_manifest,
)
from pytest_qnnctx.build.pins.manifest_text import parse, pin_sha256, render
from pytest_qnnctx.build.pins.pinning import pin_of_artifact, put_pin
from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.model import Artifact

NET = "net for QCS6490/v68"


def test_what_is_written_is_read(tmp_path):
    manifest = manifest_of(tmp_path, "net", "other", store="binaries")
    write_manifest(manifest)
    assert read_manifest(manifest.path) == manifest
    assert manifest.store.directory == tmp_path / "binaries"


def test_the_text_does_not_depend_on_the_order(tmp_path):
    one, other = manifest_of(tmp_path, "a", "b"), manifest_of(tmp_path, "b", "a")
    assert render(one) == render(other)


def test_the_diff_of_one_model_touches_one_block(tmp_path):
    before = manifest_of(tmp_path, "a", "b", "c")
    (tmp_path / "models" / "b.onnx").write_bytes(b"another graph")
    model = replace(model_in(tmp_path / "elsewhere", "b"), path=tmp_path / "models" / "b.onnx")
    model = replace(model, encodings=tmp_path / "models" / "b.encodings")
    after = before.with_pin(pin_of(model, tmp_path, b"another binary", "b.bin"))
    lines = difflib.unified_diff(render(before).split("\n"), render(after).split("\n"), n=0)
    changed = [line for line in lines if re.match(r"[+-] ", line)]
    assert [line for line in changed if '"onnx": {"path": "models/b.onnx"' in line]
    assert len(changed) == 8  # onnx, the binary, and its hash and size in the provenance


def test_a_written_manifest_replaces_the_old_one_as_a_whole(tmp_path):
    manifest = manifest_of(tmp_path, "net")
    write_manifest(manifest)
    manifest.path.chmod(0o640)
    write_manifest(manifest.with_store("there"))
    assert manifest.path.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"models", "qnnctx.lock"}


def test_a_manifest_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InfrastructureError, match=r"nowhere/qnnctx\.lock"):
        write_manifest(Manifest(tmp_path / "nowhere" / "qnnctx.lock"))


def test_pins_put_in_by_many_processes_are_all_there(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom pin_samples import model_in, pin_of\n"
        "from pytest_qnnctx.build.pins.manifest import change_manifest\n"
        "folder = Path(sys.argv[2])\n"
        "for number in range(8):\n"
        "    pin = pin_of(model_in(folder / 'models', f'{sys.argv[3]}{number}'), folder)\n"
        "    change_manifest(folder / 'qnnctx.lock', lambda m: m.with_pin(pin),\n"
        "                    lock_dir=folder / 'locks')\n"
    )
    here = __file__.rpartition("/")[0]
    children = [
        subprocess.Popen([sys.executable, "-c", code, here, str(tmp_path), name]) for name in "abc"
    ]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
    assert len(read_manifest(tmp_path / "qnnctx.lock").pins) == 24


def test_a_change_that_changes_nothing_writes_nothing(tmp_path):
    manifest = manifest_of(tmp_path, "net")
    text = render(manifest).replace("\n", "\n\n")  # somebody's own layout
    manifest.path.write_text(text)
    change_manifest(manifest.path, lambda same: same, lock_dir=tmp_path / "locks")
    assert manifest.path.read_text() == text


# --- what is refused --------------------------------------------------------------------------


def text_of(tmp_path) -> str:
    return render(manifest_of(tmp_path, "net", "other", store="binaries"))


def refused(content: str | bytes, tmp_path) -> str:
    raw = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(UsageError) as caught:
        parse(raw, tmp_path / "qnnctx.lock")
    assert "qnnctx.lock" in caught.value.what
    assert caught.value.next_step
    return str(caught.value)


def test_there_is_none(tmp_path):
    with pytest.raises(UsageError, match="--update-manifest"):
        read_manifest(tmp_path / "qnnctx.lock")


def test_it_is_a_directory(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_manifest(tmp_path)


def test_it_is_an_lfs_pointer(tmp_path):
    (tmp_path / "qnnctx.lock").write_bytes(pointer(b"a manifest"))
    with pytest.raises(InfrastructureError, match="git lfs pull"):
        read_manifest(tmp_path / "qnnctx.lock")


def test_a_merge_conflict_is_called_that(tmp_path):
    text = text_of(tmp_path).split("\n")
    text[10:10] = ["<<<<<<< HEAD"]
    text[14:14] = ["=======", ">>>>>>> theirs"]
    told = refused("\n".join(text), tmp_path)
    assert "merge conflict" in told
    assert "line 11" in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no JSON"),
        ("{", "line 1"),
        (b"\xff\xfe", "UTF-8"),
        ("[]", "schema_version"),
        ('{"pins": {}}', "schema_version"),
        ('{"schema_version": 2, "pins": {}}', "newer"),
        ('{"schema_version": true, "pins": {}}', "schema_version"),
        ('{"schema_version": "1", "pins": {}}', "schema_version"),
        ('{"schema_version": 1}', "'pins' is missing"),
        ('{"schema_version": 1, "pins": []}', "no mapping"),
        ('{"schema_version": 1, "pins": {}, "stores": ""}', "'stores' is unknown"),
        ('{"schema_version": 1, "pins": {}, "pins": {}}', "twice"),
        ('{"schema_version": NaN, "pins": {}}', "NaN"),
        ('{"schema_version": 1e999, "pins": {}}', "1e999"),
        ('{"schema_version": 1, "pins": {}, "store": 3}', "store is no text"),
        ('{"schema_version": 1, "pins": {}, "store": "https://me:pw@host/x"}', "password"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_manifest(tmp_path, content, told):
    answer = refused(content, tmp_path)
    assert told in answer
    assert "pw" not in answer.replace("password", "")


def edit(pin: dict, path: str, value) -> None:
    *folders, last = path.split("/")
    for folder in folders:
        pin = pin[folder]
    if value is KeyError:
        del pin[last]
    else:
        pin[last] = value


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("model", KeyError, "'model' is missing"),
        ("model", "other", "is 'other for QCS6490/v68'"),
        ("target/soc", "qcs6490 ", "soc"),
        ("target/htp_arch", "68", "htp_arch"),
        ("target/vtcm", 2, "'vtcm' is unknown"),
        ("sources/onnx", KeyError, "no source 'onnx'"),
        ("sources/onnx/path", "/etc/passwd", "outside"),
        ("sources/onnx/path", "../net.onnx", "outside"),
        ("sources/onnx/path", "a/../../net.onnx", "outside"),
        ("sources/onnx/path", "C:\\net.onnx", "outside"),
        ("sources/onnx/path", "", "path of onnx"),
        ("sources/onnx/sha256", "12ab", "sha256 of onnx"),
        ("sources/onnx/sha256", "A" * 64, "sha256 of onnx"),
        ("sources/wieghts", {"path": "x", "sha256": "0" * 64}, "role"),
        ("input_shapes", {"x": []}, "shape of input 'x'"),
        ("input_shapes", {"x": [1, 0]}, "size of input 'x'"),
        ("input_shapes", {"x": [1.0]}, "size of input 'x'"),
        ("calibration", "soon", "calibration"),
        ("binary/file", "/root/net.bin", "file in the store"),
        ("binary/file", "../net.bin", "file in the store"),
        ("binary/file", "net.bin?sig=1", "file in the store"),
        ("binary/file", "http://host/net.bin", "file in the store"),
        ("binary/sha256", "0" * 64, "another binary"),
        ("binary/size_bytes", 1, "another binary"),
        ("binary/size_bytes", -1, "size_bytes"),
        ("binary/size_bytes", True, "size_bytes"),
        ("provenance", {}, "provenance"),
        ("provenance/from_the_future", 1, "newer"),
        ("provenance/quantization", "../../w8", "quantization"),
        ("provenance/encodings", {"version": 3, "colour": 1}, "provenance"),
        ("provenance/target", "v68", "provenance"),
        ("provenance/findings", [1], "provenance"),
    ],
)
def test_what_is_no_pin(tmp_path, path, value, told):
    data = json.loads(text_of(tmp_path))
    edit(data["pins"][NET], path, value)
    answer = refused(json.dumps(data), tmp_path)
    assert told in answer
    assert NET in answer


@settings(max_examples=60, deadline=None)
@given(
    at=st.integers(0, 10_000),
    cut=st.integers(0, 40),
    put=st.text(st.characters(codec="utf-8"), max_size=20),
)
def test_no_edit_by_hand_ends_in_a_traceback(tmp_path_factory, at, cut, put):
    folder = tmp_path_factory.getbasetemp() / "edited"
    text = text_of(folder)
    at %= len(text)
    edited = (text[:at] + put + text[at + cut :]).encode()
    try:
        manifest = parse(edited, folder / "qnnctx.lock")
    except UsageError as error:
        assert "qnnctx.lock" in str(error)
    else:
        assert parse(render(manifest).encode(), manifest.path) == manifest


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
trees = st.recursive(
    scalars, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=5), t, max_size=3)
)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_value_in_the_wrong_place_ends_in_a_traceback(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "replaced"
    tree = json.loads(text_of(folder))
    node = tree
    while True:  # walk down to some key
        key = data.draw(
            st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))
        )
        if isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        node[key] = data.draw(trees)
        break
    try:
        manifest = parse(json.dumps(tree).encode(), folder / "qnnctx.lock")
    except UsageError:
        return
    assert parse(render(manifest).encode(), manifest.path) == manifest


# --- pins -------------------------------------------------------------------------------------


def test_the_same_build_at_another_time_and_place_changes_no_pin(tmp_path):
    manifest = manifest_of(tmp_path, "net", store="there")
    pin = manifest.pins[NET]
    again = replace(
        pin,
        binary=replace(pin.binary, file=None),
        provenance=replace(pin.provenance, built_at="2027", builder="me", host="here", choice="x"),
    )
    assert put_pin(manifest, again) == manifest


def test_another_toolchain_version_with_the_same_bytes_is_a_new_pin(tmp_path):
    manifest = manifest_of(tmp_path, "net", store="there")
    pin = manifest.pins[NET]
    made = replace(pin.provenance, toolchain={"name": "qairt", "version": "2.38.0"})
    after = put_pin(manifest, replace(pin, provenance=made))
    assert after.pins[NET].provenance.toolchain["version"] == "2.38.0"
    assert pin_sha256(after.pins[NET]) != pin_sha256(pin)


@pytest.mark.parametrize("where", ["outside", "beside/../../outside"])
def test_a_model_outside_of_the_manifests_directory_cannot_be_pinned(tmp_path, where):
    folder = tmp_path / "project"
    (folder / "beside").mkdir(parents=True)
    model = model_in(tmp_path / "outside")
    path = folder / "beside" / ".." / ".." / "outside" / "net.onnx" if "beside" in where else None
    files = {"onnx": path or model.path}
    made = provenance("net", files={"onnx": {"name": "net.onnx", "sha256": "0" * 64}})
    artifact = Artifact(tmp_path / "x.bin", made.sha256, len(BINARY), made)
    with pytest.raises(UsageError, match="outside the manifest's directory"):
        pin_of_artifact(folder, model, V68, artifact, files=files, calibration=None, file=None)


def test_a_model_behind_a_link_in_the_directory_can_be_pinned(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    model_in(tmp_path / "disk")
    (folder / "models").symlink_to(tmp_path / "disk")
    model = model_in(folder / "models")
    made = provenance("net", files={"onnx": {"name": "net.onnx", "sha256": "0" * 64}})
    artifact = Artifact(tmp_path / "x.bin", made.sha256, len(BINARY), made)
    pin = pin_of_artifact(
        folder,
        model,
        V68,
        artifact,
        files={"onnx": folder / "models" / ".." / "models" / "net.onnx"},
        calibration=None,
        file=None,
    )
    assert pin.sources["onnx"].path == "models/net.onnx"
