"""Where a store is, and what of its address is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_qnnctx.build.pins.store_place import parse_store, scrub, shown
from pytest_qnnctx.errors import UsageError

BASE = Path("/project")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("binaries", "/project/binaries/a.bin"),
        ("../shared/qnn", "/project/../shared/qnn/a.bin"),
        ("file:///mnt/a%20b", "/mnt/a b/a.bin"),
        ("https://host:8443/qnn/", "https://host:8443/qnn/a.bin"),
        ("s3://bucket", "s3://bucket/a.bin"),
        ("abfs://container@account.dfs.core.windows.net/x", None),
        ("memory://x", "memory://x/a.bin"),
    ],
)
def test_addresses(text, address):
    place = parse_store(text, BASE, "store")
    assert place.text == text
    assert address in (None, place.address("a.bin"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " binaries",
        "https://",
        "https://me@host/x",
        "https://me:secretpw@host/x",
        "s3://key:secretpw@bucket",
        "az://container:secretpw@account",
        "https://host/x?sig=secretpw",
        "https://host/x#secretpw",
        "https://[::1/x",
        "https://host:port/x",
        "file://host/x",
        "file://x",
        "simplecache::s3://bucket",
        "s3://bucket::x",
    ],
)
def test_what_is_no_store(text):
    with pytest.raises(UsageError, match=r"^lock: store") as caught:
        parse_store(text, BASE, "lock: store")
    assert "secretpw" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_store_or_a_mistake(text):
    try:
        place = parse_store(text, BASE, "store")
    except UsageError:
        return
    assert (place.directory is None) == bool(place.url)


@given(
    user=st.text("abc%:", min_size=1, max_size=5),
    query=st.text("abc=&/", max_size=8),
    path=st.text("abc/", max_size=8),
)
def test_only_host_and_path_are_shown(user, query, path):
    assert shown(f"https://{user}XX@host:1/{path}?{query}YY") == f"https://host:1/{path}"


def test_urls_in_foreign_text_are_cleaned():
    text = "403, url='https://me:pw@host/a?sig=1'\nand s3://b/c?x"
    assert scrub(text) == "403, url='https://host/a' and s3://b/c"
    assert len(scrub("x" * 1000)) == 300
