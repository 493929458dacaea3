"""Whom a destination means, by an ssh configuration."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.hosts.ssh_config import resolve_route


@pytest.fixture
def resolve(tmp_path):
    def resolve(text, destination="box", **options):
        (tmp_path / "config").write_text(text)
        return resolve_route(destination, config_file=tmp_path / "config", **options)

    return resolve


def test_a_name_that_no_configuration_knows(resolve):
    (box,) = resolve("")
    assert (box.alias, box.hostname, box.port, box.user) == ("box", "box", 22, getpass.getuser())
    assert (box.given_keys, box.proxy_command, box.host_key_name) == (False, None, "box")
    assert Path("~/.ssh/known_hosts").expanduser() in box.known_hosts
    assert Path("~/.ssh/id_ed25519").expanduser() in box.identity_files


def test_an_alias(resolve, tmp_path):
    (box,) = resolve(
        "Host box\n HostName Box.Lab\n Port 2222\n User lab\n IdentitiesOnly yes\n"
        f" IdentityFile ~/k1\n IdentityFile {tmp_path}/%h-%r-%p-%n\n IdentityAgent none\n"
        f" UserKnownHostsFile {tmp_path}/a {tmp_path}/b\n GlobalKnownHostsFile none\n"
        "Host *\n User other\n"
    )
    assert (box.hostname, box.port, box.user) == ("Box.Lab", 2222, "lab")
    assert box.identity_files == (Path("~/k1").expanduser(), tmp_path / "Box.Lab-lab-2222-box")
    assert (box.identities_only, box.given_keys, box.agent) == (True, True, "")
    assert box.known_hosts == (tmp_path / "a", tmp_path / "b")
    assert box.host_key_name == "[box.lab]:2222"
    assert str(box) == "box (lab@Box.Lab port 2222)"


@pytest.mark.parametrize(
    ("destination", "options", "expected"),
    [
        ("box", {}, ("conf", 2222)),
        ("me@box", {}, ("me", 2222)),
        ("me@box", {"user": "you", "port": 3}, ("you", 3)),
        ("ssh://me@box:4", {}, ("me", 4)),
        ("ssh://box/", {}, ("conf", 2222)),
    ],
)
def test_what_wins(resolve, destination, options, expected):
    (box,) = resolve("Host box\n User conf\n Port 2222\n", destination, **options)
    assert (box.alias, box.user, box.port) == ("box", *expected)


def test_a_key_alias(resolve):
    (box,) = resolve("Host box\n HostKeyAlias lab-box\n Port 2222\n")
    assert box.host_key_name == "lab-box"


def test_tokens_of_a_proxy_command_are_those_that_count(resolve):
    (box,) = resolve("Host box\n HostName h\n ProxyCommand nc %h %p\n", port=7)
    assert box.proxy_command == "nc h 7"
    assert resolve("Host box\n ProxyCommand none\n")[0].proxy_command is None


def test_jump_hosts_come_first_and_by_their_aliases(resolve):
    route = resolve(
        "Host box\n ProxyJump gate,you@inner:2200\n"
        "Host gate\n HostName gate.lab\n ProxyJump outer\n User g\n"
        "Host inner\n ProxyJump unused\n ProxyCommand unused\n"
    )
    assert [(hop.alias, hop.hostname, hop.port) for hop in route] == [
        ("outer", "outer", 22),
        ("gate", "gate.lab", 22),
        ("inner", "inner", 2200),
        ("box", "box", 22),
    ]
    assert [hop.user for hop in route[1:3]] == ["g", "you"]
    assert [hop.proxy_command for hop in route] == [None] * 4


def test_no_jump(resolve):
    assert len(resolve("Host box\n ProxyJump none\nHost *\n ProxyJump gate\n")) == 1


@pytest.mark.parametrize("text", ["Host *\n ProxyJump gate\n", "Host box\n ProxyJump box\n"])
def test_jumping_in_circles(resolve, text):
    with pytest.raises(UsageError, match="round in circles"):
        resolve(text)


def test_includes(resolve, tmp_path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "1.conf").write_text("Host box\n  Port 1\n")
    (tmp_path / "conf.d" / "2.conf").write_text("Host box\n  Port 2\n  User two\n")
    (tmp_path / "block").write_text("HostKeyAlias alias\n")
    text = (
        f"Include {tmp_path}/conf.d/*.conf {tmp_path}/none\n"
        "IdentityFile /everywhere\n"
        f"Host other\n  include = {tmp_path}/block\n  User other\n"
    )
    (box,) = resolve(text)
    assert (box.port, box.user, box.key_alias) == (1, "two", "")
    assert box.identity_files == (Path("/everywhere"),)
    (other,) = resolve(text, "other")
    assert (other.key_alias, other.user) == ("alias", "other")
    (third,) = resolve(text, "third")
    assert third.identity_files == (Path("/everywhere"),)


def test_a_file_that_includes_itself(resolve, tmp_path):
    with pytest.raises(UsageError, match="includes itself"):
        resolve(f"Include {tmp_path}/config\n")


@pytest.mark.parametrize(
    "text",
    [
        "Host box\n Port many\n",
        "Host box\n Port 0\n",
        "Host\n",
        "Match nonsense\n",
        "what is this?\n!",
        "Include 'open\n",
        "Host box\n UserKnownHostsFile 'open\n",
    ],
)
def test_a_configuration_that_is_no_good(resolve, text):
    with pytest.raises(UsageError):
        resolve(text)


def test_a_configuration_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="none' cannot be read"):
        resolve_route("box", config_file=tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be read"):
        resolve_route("box", config_file=tmp_path)


@pytest.mark.parametrize("destination", ["", "-oProxyCommand=x", "a b", "me@", "a@b@c", "a\nb"])
def test_what_is_no_destination(resolve, destination):
    with pytest.raises(UsageError):
        resolve("", destination)


def test_a_password_in_a_destination_is_refused_and_not_shown(resolve):
    for destination in ("me:hunter2@box", "ssh://me:hunter2@box"):
        with pytest.raises(UsageError, match="password") as caught:
            resolve("", destination)
        assert "hunter2" not in str(caught.value)


WORDS = st.sampled_from(
    ["Host", "box", "*", "!box", "Match", "all", "Port", "22", "ProxyJump", "a,b", "Include", "'",
     "IdentityFile", "%d/%u", "~", "~nobody-x/k", "\n", "\n", "=", '"']
)  # fmt: skip


@given(st.lists(WORDS, max_size=14).map(" ".join))
@settings(max_examples=100, deadline=None)
def test_no_configuration_does_anything_but_a_usage_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any_ssh_config"
    path.write_text(text)
    try:
        assert resolve_route("box", config_file=path)[-1].alias == "box"
    except UsageError as error:
        assert error.next_step
