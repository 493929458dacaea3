"""Opening an SSH connection: by aliases, through jump hosts, and each way in which it fails."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import threading
import time

import pytest

from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.ssh import open_ssh


def says(config_file, destination="box", **options) -> str:
    """Opens, runs something, and closes."""
    host = open_ssh(destination, name="the box", config_file=config_file, **options)
    try:
        return host.execute(["echo", "here"], timeout_s=20).stdout
    finally:
        host.close()


def refused(config_file, destination="box", **options) -> InfrastructureError:
    with pytest.raises(InfrastructureError) as caught:
        open_ssh(destination, name="the box", config_file=config_file, **options)
    assert str(caught.value).startswith("the box: ")
    assert caught.value.next_step
    return caught.value


def ssh_keygen(*words: str) -> None:
    subprocess.run(["ssh-keygen", "-q", *words], check=True, timeout=60)


@pytest.fixture
def other_key(tmp_path):
    ssh_keygen("-t", "ed25519", "-N", "", "-f", str(tmp_path / "other_key"))
    return tmp_path / "other_key"


def test_an_alias(sshd):
    assert says(sshd.config_file, "buildbox") == "here\n"


def test_port_and_user_win_over_the_configuration(sshd):
    config = sshd.alias("box", Port=1, User="nobody-at-all")
    assert says(config, port=sshd.port, user=sshd.user) == "here\n"
    assert says(config, f"{sshd.user}@box", port=sshd.port) == "here\n"


def test_through_a_jump_host(sshd):
    assert says(sshd.config_file, "buildbox-jump") == "here\n"


def test_through_a_chain_of_jump_hosts(sshd):
    config = sshd.alias("a b box")
    text = config.read_text()
    config.write_text(f"Host box\n  ProxyJump a,{sshd.user}@b:{sshd.port}\n{text}")
    assert says(config) == "here\n"


def test_through_a_command(sshd, tmp_path):
    relay = (
        "import os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while d := os.read(0, 65536): s.sendall(d)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while d := s.recv(65536): os.write(1, d)\n"
    )
    (tmp_path / "relay.py").write_text(relay)
    command = f"python3 {shlex.quote(str(tmp_path / 'relay.py'))} %h %p"
    before = threading.active_count()
    assert says(sshd.alias("box", ProxyCommand=command)) == "here\n"
    assert threading.active_count() <= before + 1


def test_a_command_that_fails_says_why(sshd):
    error = refused(sshd.alias("box", ProxyCommand="sh -c 'echo no way through >&2'"))
    assert "no way through" in str(error)


def test_a_key_in_the_agent(sshd, tmp_path):
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "agent").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        environment = os.environ | {"SSH_AUTH_SOCK": str(tmp_path / "agent")}
        subprocess.run(
            ["ssh-add", "-q", str(sshd.identity_file)], env=environment, check=True, timeout=60
        )
        options = {"IdentityAgent": tmp_path / "agent", "IdentitiesOnly": "no"}
        assert says(sshd.alias("box", IdentityFile="none", **options)) == "here\n"
        # A key that needs its passphrase is used by the agent.
        public = tmp_path / "named.pub"
        public.write_text(sshd.identity_file.with_suffix(".pub").read_text())
        config = sshd.alias(
            "box", IdentityFile=public, IdentityAgent=tmp_path / "agent", IdentitiesOnly="yes"
        )
        assert says(config) == "here\n"
    finally:
        agent.terminate()
        agent.wait(20)


def test_a_hashed_name_in_known_hosts(sshd, tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_hosts.read_text())
    ssh_keygen("-H", "-f", str(known))
    assert "127.0.0.1" not in known.read_text()
    assert says(sshd.alias("box", UserKnownHostsFile=known)) == "here\n"


@pytest.mark.parametrize("strict", ["no", "accept-new", "off"])
def test_an_unknown_host_key_is_never_taken(sshd, tmp_path, strict):
    known = tmp_path / "known_hosts"
    config = sshd.alias("box", UserKnownHostsFile=known, StrictHostKeyChecking=strict)
    error = refused(config)
    assert "is not known" in str(error)
    shown = re.search(r"SHA256:\S+?(?=\))", str(error))
    printed = subprocess.run(
        ["ssh-keygen", "-lf", str(sshd.host_key)], capture_output=True, text=True, check=True
    ).stdout
    assert shown
    assert shown[0] in printed
    assert "`ssh box` once" in error.next_step
    assert "compare the fingerprint" in error.next_step
    assert not known.exists()


def test_no_known_hosts_file_at_all(sshd):
    assert "is not known" in str(refused(sshd.alias("box", UserKnownHostsFile="/dev/null")))


def test_a_changed_host_key(sshd, tmp_path, other_key):
    known = tmp_path / "known_hosts"
    kind, key = other_key.with_suffix(".pub").read_text().split()[:2]
    known.write_text(f"# a comment\n[127.0.0.1]:{sshd.port} {kind} {key}\n")
    error = refused(sshd.alias("box", UserKnownHostsFile=known))
    assert f"is not the one in {known} line 2" in str(error)
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}'" in error.next_step


def test_a_revoked_host_key(sshd, tmp_path):
    known = tmp_path / "known_hosts"
    line = sshd.known_hosts.read_text()
    known.write_text(f"{line}@revoked * {line.split(' ', 1)[1]}")
    assert "is revoked" in str(refused(sshd.alias("box", UserKnownHostsFile=known)))


def test_a_wrong_key_names_what_was_tried(sshd, other_key, tmp_path):
    config = sshd.alias("box", IdentityFile=other_key)
    config.write_text(
        f"{config.read_text()}  IdentityFile {tmp_path / 'none'}\n  IdentityAgent none\n"
    )
    error = refused(config)
    assert "refused the login" in str(error)
    assert f"{other_key}: refused" in str(error)
    assert f"{tmp_path / 'none'}: does not exist" in str(error)
    assert "ssh-add" in error.next_step


def test_keys_that_cannot_be_used_are_named(sshd, tmp_path):
    ssh_keygen("-t", "ed25519", "-N", "hunter2", "-f", str(tmp_path / "locked"))
    (tmp_path / "garbage").write_text("hunter2 is no key")
    (tmp_path / "folder").mkdir()
    config = sshd.alias("box", IdentityFile=tmp_path / "locked")
    lines = "".join(f"  IdentityFile {tmp_path / name}\n" for name in ("garbage", "folder"))
    config.write_text(config.read_text() + lines)
    message = str(refused(config))
    assert f"{tmp_path / 'locked'}: needs its passphrase" in message
    assert f"{tmp_path / 'garbage'}: is no private key" in message
    assert f"{tmp_path / 'folder'}: cannot be read" in message
    assert "hunter2" not in message


def test_a_key_file_without_permission(sshd, other_key):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    other_key.chmod(0)
    assert "cannot be read" in str(refused(sshd.alias("box", IdentityFile=other_key)))


def test_another_user_is_refused(sshd):
    assert "refused the login" in str(refused(sshd.alias("box"), user="nobody-at-all"))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_a_dead_port(sshd):
    port = free_port()
    error = refused(sshd.alias("box", Port=port))
    assert f"127.0.0.1 port {port} refuses connections" in str(error)
    assert "booted" in error.next_step


def test_an_unknown_name(sshd):
    error = refused(sshd.alias("box", HostName="no-such-machine.invalid"))
    assert "the name 'no-such-machine.invalid' is not known" in str(error)


def test_a_port_that_never_answers(sshd):
    with socket.create_server(("127.0.0.1", 0)) as server:
        started = time.monotonic()
        error = refused(sshd.alias("box", Port=server.getsockname()[1]), connect_timeout_s=0.5)
        assert time.monotonic() - started < 10
    assert "did not answer within 0.5 s" in str(error)


def test_something_that_is_no_ssh_server(sshd):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        error = refused(sshd.alias("box", Port=server.getsockname()[1]))
        thread.join()
    assert "does not answer as an SSH server" in str(error)


def test_a_jump_host_that_cannot_reach_the_next(sshd):
    port = free_port()
    config = sshd.alias("jump")
    config.write_text(
        f"Host box\n  Port {port}\n  HostName 127.0.0.1\n  ProxyJump jump\n{config.read_text()}"
    )
    error = refused(config)
    assert f"the jump host does not let through to 127.0.0.1 port {port}" in str(error)


def test_a_jump_host_whose_key_is_unknown(sshd, tmp_path):
    config = sshd.alias("jump", UserKnownHostsFile=tmp_path / "none")
    config.write_text(f"{config.read_text()}{sshd.alias('box', ProxyJump='jump').read_text()}")
    error = refused(config)
    assert "jump" in str(error)
    assert "is not known" in str(error)


def test_a_login_that_gives_no_shell(own_sshd):
    keys = own_sshd.directory / "authorized_keys"
    keys.write_text(f'command="echo only files here" {keys.read_text()}')
    host = open_ssh("buildbox", name="the box", config_file=own_sshd.config_file)
    with pytest.raises(InfrastructureError, match="gives no POSIX shell: only files here"):
        host.execute(["true"], timeout_s=10)
    host.close()


def test_what_a_login_prints_is_no_output(own_sshd, tmp_path):
    keys = own_sshd.directory / "authorized_keys"
    noisy = tmp_path / "noisy.sh"
    noisy.write_text('echo welcome; echo careful >&2; eval "$SSH_ORIGINAL_COMMAND"')
    keys.write_text(f'command="sh {noisy}" {keys.read_text()}')
    host = open_ssh("buildbox", name="the box", config_file=own_sshd.config_file)
    done = host.execute(["sh", "-c", "echo out; echo err >&2"], timeout_s=10)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    host.close()


def test_nothing_of_a_command_s_environment_is_seen_in_ps(sshd):
    host = open_ssh("buildbox", name="the box", config_file=sshd.config_file)
    done = host.execute(
        ["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo $WORD | wc -c"],
        timeout_s=20,
        env={"WORD": "qnnctx-hidden-word"},
    )
    assert done.stdout.endswith("19\n")
    assert "qnnctx-hidden-word" not in done.stdout
    host.close()


def test_remote_paths_begin_with_no_tilde(sshd, tmp_path):
    (tmp_path / "a").write_text("")
    host = open_ssh("buildbox", name="the box", config_file=sshd.config_file)
    for call in (
        lambda: host.push(tmp_path / "a", "~/a", timeout_s=5),
        lambda: host.pull("~/a", tmp_path / "b", timeout_s=5),
        lambda: host.execute(["true"], timeout_s=5, cwd="~"),
        lambda: host.execute(["true"], timeout_s=5, env={"A B": "x"}),
    ):
        with pytest.raises(UsageError):
            call()
    host.close()


def test_a_bad_time_limit(sshd):
    with pytest.raises(UsageError, match="time limit"):
        open_ssh("buildbox", name="x", config_file=sshd.config_file, connect_timeout_s=0)
