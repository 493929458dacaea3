"""A host key counts when a known_hosts line says so, as `ssh` reads those lines."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.hosts.known_hosts import (
    fingerprint,
    judge_key,
    kinds_for,
    read_known_hosts,
)

KEY, OTHER = b"the key", b"another key"
B64, OTHER64 = (base64.b64encode(key).decode() for key in (KEY, OTHER))


@pytest.fixture
def judge(tmp_path):
    def judge(text, name="box", kind="ssh-ed25519", key=KEY):
        (tmp_path / "known_hosts").write_text(text)
        return judge_key(read_known_hosts([tmp_path / "known_hosts"]), name, kind, key).state

    return judge


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, name.encode(), hashlib.sha1)
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (f"box ssh-ed25519 {B64}", "known"),
        (f"a,box,b ssh-ed25519 {B64} a comment", "known"),
        (f"*o? ssh-ed25519 {B64}", "known"),
        (f"BOX ssh-ed25519 {B64}", "known"),
        (f"*,!box ssh-ed25519 {B64}", "unknown"),
        (f"{hashed('box')} ssh-ed25519 {B64}", "known"),
        (f"{hashed('fox')} ssh-ed25519 {B64}", "unknown"),
        (f"boxer ssh-ed25519 {B64}", "unknown"),
        (f"[box]:22 ssh-ed25519 {B64}", "unknown"),
        (f"box ssh-ed25519 {OTHER64}", "changed"),
        (f"box ssh-ed25519 {OTHER64}\nbox ssh-ed25519 {B64}", "known"),
        (f"box ssh-rsa {OTHER64}", "changed"),
        (f"box ssh-ed25519 {B64}\n@revoked * ssh-ed25519 {B64}", "revoked"),
        (f"box ssh-ed25519 {B64}\n@revoked * ssh-ed25519 {OTHER64}", "known"),
        (f"@cert-authority * ssh-ed25519 {B64}", "unknown"),
        (f"# box ssh-ed25519 {B64}", "unknown"),
        ("box ssh-ed25519 not-base64!", "unknown"),
        ("box ssh-ed25519", "unknown"),
        ("|1|x|y ssh-ed25519 AAAA", "unknown"),
        ("", "unknown"),
    ],
)
def test_lines(judge, line, state):
    assert judge(line + "\n") == state


def test_a_port_is_part_of_the_name(judge):
    text = f"[box]:2222 ssh-ed25519 {B64}\n"
    assert judge(text, name="[box]:2222") == "known"
    assert judge(text, name="[box]:2223") == "unknown"
    assert judge(f"[*]:2222 ssh-ed25519 {B64}\n", name="[box]:2222") == "known"


def test_kinds_that_are_known(tmp_path):
    path = tmp_path / "known_hosts"
    path.write_text(f"box ssh-rsa {B64}\nbox ssh-ed25519 {B64}\nfox ecdsa-sha2-nistp256 {B64}\n")
    assert kinds_for(read_known_hosts([path]), "box") == ("ssh-rsa", "ssh-ed25519")


def test_files_that_do_not_exist_hold_nothing(tmp_path):
    assert read_known_hosts([tmp_path / "none", tmp_path / "none" / "deeper"]) == ()


def test_a_line_says_where_it_is(tmp_path):
    path = tmp_path / "known_hosts"
    path.write_text(f"\n# x\nbox ssh-ed25519 {B64}\n")
    assert read_known_hosts([path])[0].where == f"{path} line 3"


def test_fingerprint():
    digest = base64.b64encode(hashlib.sha256(KEY).digest()).decode().rstrip("=")
    assert fingerprint(KEY) == f"SHA256:{digest}"


@given(st.text("b|1,!*[]@# \n=AZox", max_size=80))
@settings(max_examples=100)
def test_no_text_stops_the_reading(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any_known_hosts"
    path.write_text(text)
    assert judge_key(read_known_hosts([path]), "box", "ssh-ed25519", KEY).state == "unknown"
