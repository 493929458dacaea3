"""Publishing: under a name of its own, verified, and never over other bytes."""

from __future__ import annotations

import os

import pytest
from loopback_store import serving
from pin_samples import BINARY, pointer, provenance, sha256

from pytest_qnnctx.build.pins.publish import is_writable_directory, publish
from pytest_qnnctx.build.pins.store_place import parse_store
from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.model import Artifact

NAME = f"net_w8a16_v68-{sha256(BINARY)[:12]}.bin"


@pytest.fixture
def artifact(tmp_path):
    path = tmp_path / "net_w8a16_v68.bin"
    path.write_bytes(BINARY)
    return Artifact(path, sha256(BINARY), len(BINARY), provenance("net"))


def put(artifact, where, base):
    return publish(artifact, parse_store(str(where), base, "--publish"), lambda line: None)


def test_into_a_directory_that_is_made_for_it(artifact, tmp_path):
    pinned = put(artifact, "a/b", tmp_path)
    assert (pinned.file, pinned.sha256, pinned.size_bytes) == (NAME, sha256(BINARY), len(BINARY))
    (file,) = (tmp_path / "a" / "b").iterdir()
    assert (file.name, file.read_bytes()) == (NAME, BINARY)
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("there", [BINARY, pointer(BINARY)], ids=["the same", "its LFS pointer"])
def test_what_is_there_already_stays(artifact, tmp_path, there):
    (tmp_path / NAME).write_bytes(there)
    before = (tmp_path / NAME).stat()
    put(artifact, ".", tmp_path)
    assert (tmp_path / NAME).read_bytes() == there
    assert (tmp_path / NAME).stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("there", [BINARY[:-1], pointer(b"another")])
def test_other_bytes_in_a_directory_are_not_overwritten(artifact, tmp_path, there):
    (tmp_path / NAME).write_bytes(there)
    with pytest.raises(InfrastructureError, match="nothing was overwritten"):
        put(artifact, ".", tmp_path)
    assert (tmp_path / NAME).read_bytes() == there


def test_an_artifact_that_changed_is_not_published(artifact, tmp_path):
    artifact.path.write_bytes(b"changed")
    with pytest.raises(InfrastructureError, match="changed while"):
        put(artifact, "store", tmp_path)
    assert list((tmp_path / "store").iterdir()) == []


def test_a_directory_that_cannot_be_made(artifact, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InfrastructureError, match="cannot publish"):
        put(artifact, "file/store", tmp_path)


def test_what_is_written_without_being_asked(tmp_path):
    def writable(text: str) -> bool:
        return is_writable_directory(parse_store(text, tmp_path, "store"))

    (tmp_path / "store").mkdir()
    assert writable("store")
    assert not writable("nowhere")
    assert not writable("https://host/x")
    (tmp_path / "store").chmod(0o500)
    assert writable("store") == (os.getuid() == 0)


def test_into_any_file_system_of_fsspec(artifact, tmp_path):
    import fsspec

    put(artifact, "memory://published-by-this-test", tmp_path)
    put(artifact, "memory://published-by-this-test", tmp_path)
    memory = fsspec.filesystem("memory")
    assert memory.cat_file(f"/published-by-this-test/{NAME}") == BINARY
    memory.pipe_file(f"/published-by-this-test/{NAME}", b"other")
    with pytest.raises(InfrastructureError, match="nothing was overwritten"):
        put(artifact, "memory://published-by-this-test", tmp_path)
    assert memory.cat_file(f"/published-by-this-test/{NAME}") == b"other"


def test_over_http_it_is_put_and_read_back(artifact, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as store:
        put(artifact, store.url, tmp_path)
        assert store.asked == [f"{verb} /qnn/{NAME}" for verb in ("GET", "PUT", "GET")]
        assert store.files[f"/qnn/{NAME}"] == BINARY
        put(artifact, store.url, tmp_path)
        assert len(store.asked) == 4
        store.files.clear()
        store.answers = [404, 403]
        with pytest.raises(InfrastructureError, match=r"could not publish.*denies access"):
            put(artifact, store.url, tmp_path)
