"""Getting a pinned binary: every way in which a store can fail has its own error."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from loopback_store import serving
from pin_samples import BINARY, pointer, sha256

from pytest_qnnctx.build.pins.binary_source import MissingInStoreError, fetch_binary
from pytest_qnnctx.build.pins.manifest import PinnedBinary
from pytest_qnnctx.build.pins.store_errors import explain
from pytest_qnnctx.build.pins.store_place import StorePlace, parse_store
from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError

PINNED = PinnedBinary("net.bin", sha256(BINARY), len(BINARY))


class Fetched:
    """One attempt, and what it said."""

    def __init__(self, tmp_path) -> None:
        self.folder = tmp_path / "fetched"
        self.folder.mkdir()
        self.told: list[str] = []

    def __call__(self, place: StorePlace | str, *, limit: float = 20.0, pauses=(0.0, 0.0)) -> bytes:
        if isinstance(place, str):
            place = parse_store(place, self.folder, "store")
        target = self.folder / "binary"
        fetch_binary(
            place,
            PINNED,
            target,
            time_limit_s=limit,
            progress=self.told.append,
            pauses_s=pauses,
        )
        return target.read_bytes()

    @property
    def nothing_left(self) -> bool:
        return not list(self.folder.iterdir())


@pytest.fixture
def fetch(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return Fetched(tmp_path)


@pytest.fixture
def store():
    with serving() as opened:
        opened.files["/qnn/net.bin"] = BINARY
        yield opened


# --- a directory ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "file URL"])
def test_from_a_directory(fetch, tmp_path, form):
    folder = tmp_path / "binaries"
    folder.mkdir()
    (folder / "net.bin").write_bytes(BINARY)
    assert fetch(folder.as_uri() if form == "file URL" else "../binaries") == BINARY


@pytest.mark.parametrize("content", [BINARY[:-1], BINARY + b"x", b"x" + BINARY[1:], b""])
def test_other_bytes_in_a_directory_are_the_products_failure(fetch, tmp_path, content):
    (tmp_path / "net.bin").write_bytes(content)
    with pytest.raises(ProductFailure, match="replaced or damaged") as caught:
        fetch("..")
    assert PINNED.sha256[:12] in str(caught.value)
    assert "net.bin" in str(caught.value)
    assert fetch.nothing_left


def test_a_pointer_in_a_directory(fetch, tmp_path):
    (tmp_path / "net.bin").write_bytes(pointer(BINARY))
    with pytest.raises(InfrastructureError, match="git lfs pull"):
        fetch("..")


def test_a_missing_file_and_a_missing_directory_are_told_apart(fetch, tmp_path):
    with pytest.raises(MissingInStoreError, match=r"net\.bin' is not in the store"):
        fetch("..")
    with pytest.raises(InfrastructureError, match="not mounted") as caught:
        fetch("../nowhere")
    assert not isinstance(caught.value, MissingInStoreError)


def test_a_directory_in_the_files_place(fetch, tmp_path):
    (tmp_path / "net.bin").mkdir()
    with pytest.raises(InfrastructureError, match="is no file"):
        fetch("..")


# --- HTTP -------------------------------------------------------------------------------------


def test_over_http(fetch, store):
    assert fetch(store.url) == BINARY
    assert store.asked == ["GET /qnn/net.bin"]
    assert fetch.told == []


@pytest.mark.parametrize("trouble", [500, 503, 429, "cut"])
def test_a_passing_trouble_is_tried_again_and_told(fetch, store, trouble):
    store.answers = [trouble]
    assert fetch(store.url) == BINARY
    assert len(fetch.told) == 1
    assert "trying again (2 of 3)" in fetch.told[0]
    assert [path.name for path in fetch.folder.iterdir()] == ["binary"]


@pytest.mark.parametrize(("trouble", "told"), [(500, "HTTP 500"), ("cut", "broke off")])
def test_a_lasting_trouble_is_the_stores(fetch, store, trouble, told):
    store.always = trouble
    with pytest.raises(InfrastructureError, match=told) as caught:
        fetch(store.url)
    assert "3 tries" in caught.value.what
    assert fetch.nothing_left


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (404, MissingInStoreError, "is not in the store"),
        (403, InfrastructureError, r"denies access.*HTTP 403"),
        (401, InfrastructureError, r"wants credentials.*HTTP 401"),
        (418, InfrastructureError, "HTTP 418"),
    ],
)
def test_what_would_be_refused_again_is_asked_once(fetch, store, status, kind, told):
    store.always = status
    with pytest.raises(kind, match=told) as caught:
        fetch(store.url)
    assert f"{store.url}/net.bin" in caught.value.what
    assert len(store.asked) == 1
    assert fetch.nothing_left


def test_other_bytes_from_a_store_are_asked_for_twice_and_then_refused(fetch, store):
    store.files["/qnn/net.bin"] = b"x" + BINARY[1:]
    with pytest.raises(ProductFailure, match="replaced or damaged"):
        fetch(store.url)
    assert len(store.asked) == 2
    assert "other bytes" in fetch.told[0]
    assert fetch.nothing_left


def test_other_bytes_once_are_no_failure(fetch, store):
    store.answers = [BINARY[:-5]]
    assert fetch(store.url) == BINARY


def test_a_file_that_is_far_too_long_is_not_read_to_its_end(fetch, store):
    store.files["/qnn/net.bin"] = bytes(50_000_000)
    with pytest.raises(ProductFailure, match="more than 10240 bytes"):
        fetch(store.url)
    assert fetch.nothing_left


def test_a_login_page_is_no_binary(fetch, store):
    store.always = b"\n<!DOCTYPE html><title>Log in</title>"
    with pytest.raises(InfrastructureError, match="login page"):
        fetch(store.url)


def test_a_pointer_from_a_store(fetch, store):
    store.always = pointer(BINARY)
    with pytest.raises(InfrastructureError, match="git lfs pull"):
        fetch(store.url)


def test_nobody_listens(fetch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        fetch(f"http://127.0.0.1:{port}/qnn")


def test_silence_has_an_end(fetch, store):
    store.always = "stall"
    began = time.monotonic()
    with pytest.raises(InfrastructureError):
        fetch(store.url, limit=0.5)
    assert time.monotonic() - began < 3
    assert not (fetch.folder / "binary").exists()


def test_the_signature_of_a_redirection_is_not_shown(fetch, store):
    store.answers = [f"{store.url}/elsewhere?X-Signature=verysecret"]
    store.always = 403
    with pytest.raises(InfrastructureError) as caught:
        fetch(store.url)
    assert "verysecret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(store.asked) == 2


# --- other protocols --------------------------------------------------------------------------


def test_any_file_system_of_fsspec(fetch):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/binaries-of-this-test/net.bin", BINARY)
    assert fetch("memory://binaries-of-this-test") == BINARY
    with pytest.raises(MissingInStoreError):
        fetch("memory://nothing-here")


def test_an_unknown_protocol(fetch):
    with pytest.raises(UsageError, match="gopherish"):
        fetch("gopherish://host/x")


@pytest.mark.parametrize(
    ("url", "hidden", "extra"),
    [
        ("https://host/x", "fsspec", "fetch"),
        ("http://host/x", "aiohttp", "fetch"),
        ("s3://bucket/x", "s3fs", "s3"),
        ("gs://bucket/x", "gcsfs", "gcs"),
        ("az://container/x", "adlfs", "azure"),
        ("s3://bucket/x", "fsspec", "s3"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(tmp_path, url, hidden, extra):
    code = textwrap.dedent(
        """
        import sys
        sys.modules[sys.argv[2]] = None  # as if it were not installed
        from pathlib import Path
        from pytest_qnnctx.build.pins.binary_source import fetch_binary
        from pytest_qnnctx.build.pins.manifest import PinnedBinary
        from pytest_qnnctx.build.pins.store_place import parse_store
        from pytest_qnnctx.errors import InfrastructureError
        place = parse_store(sys.argv[1], Path(), "store")
        try:
            fetch_binary(place, PinnedBinary("a", "0" * 64, 1), Path("b"), time_limit_s=9,
                         progress=print)
        except InfrastructureError as error:
            print(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url, hidden],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert "not installed" in done.stdout
    assert f"pip install 'pytest-qnnctx[{extra}]'" in done.stdout


class NoCredentialsError(Exception):
    """As botocore calls it."""


class EndpointConnectionError(Exception):
    """As botocore calls it."""


@pytest.mark.parametrize(
    ("error", "told", "transient"),
    [
        (NoCredentialsError("Unable to locate credentials"), "wants credentials", False),
        (ValueError("Must provide account_name with credentials!!"), "wants credentials", False),
        (PermissionError("Forbidden"), "denies access", False),
        (EndpointConnectionError("to https://me:pw@s3/"), "cannot be reached", True),
        (ConnectionResetError(104, "reset"), "broke off", True),
        (RuntimeError("https://me:pw@host/x?sig=1 is odd"), "https://host/x is odd", False),
    ],
)
def test_what_the_clouds_libraries_raise(error, told, transient):
    trouble = explain(error, "s3", "s3://bucket/net.bin")
    assert told in trouble.what
    assert trouble.transient is transient
    assert "pw" not in trouble.what
    assert "AWS_PROFILE" in trouble.next_step or "credentials" not in told


def test_the_cause_of_an_error_tells_too():
    try:
        try:
            raise NoCredentialsError
        except NoCredentialsError as cause:
            raise OSError("An error occurred") from cause
    except OSError as error:
        assert "wants credentials" in explain(error, "s3", "s3://bucket/x").what
