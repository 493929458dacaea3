"""What is said, and what is left there, when an SSH connection or its machine is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.hosts.ssh import open_ssh


def wait_for(condition, within_s=20.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.fixture
def host(own_sshd):
    opened = open_ssh("buildbox", name="board rb3", config_file=own_sshd.config_file)
    yield opened
    opened.close()


@pytest.fixture
def slow_source(tmp_path):
    """A large sparse file: enough for a copy that is going on when something happens."""
    path = tmp_path / "source"
    with path.open("wb") as file:
        file.truncate(4 << 30)
    return path


def half_copies(folder: Path) -> list[Path]:
    return list(folder.glob(".copying-*"))


def when_half_copied(folder: Path, act) -> threading.Thread:
    """Does ``act`` in another thread as soon as a copy grows in ``folder``."""

    def watch():
        wait_for(lambda: any(path.stat().st_size > 1 << 20 for path in half_copies(folder)))
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_machine_that_vanishes_during_a_push(own_sshd, host, tmp_path, slow_source):
    remote = tmp_path / "remote"
    remote.mkdir()
    (remote / "model.bin").write_text("old")
    thread = when_half_copied(remote, own_sshd.kill)
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match="it was reachable and is gone") as caught:
        host.push(slow_source, str(remote / "model.bin"), timeout_s=120)
    thread.join()
    assert time.monotonic() - started < 60
    message = str(caught.value)
    for part in ("board rb3", str(slow_source), "model.bin", "uptime", "eMMC", "/tmp"):
        assert part in message
    assert (remote / "model.bin").read_text() == "old"
    wait_for(lambda: not half_copies(remote))
    with pytest.raises(InfrastructureError, match="is gone"):
        host.execute(["true"], timeout_s=5)


def test_the_next_step_of_a_lost_push_can_be_chosen(own_sshd, tmp_path, slow_source):
    host = open_ssh(
        "buildbox", name="buildbox", config_file=own_sshd.config_file, lost_in_push="ask the lab"
    )
    (tmp_path / "remote").mkdir()
    thread = when_half_copied(tmp_path / "remote", own_sshd.drop_connections)
    with pytest.raises(InfrastructureError, match="is gone") as caught:
        host.push(slow_source, str(tmp_path / "remote" / "a"), timeout_s=120)
    thread.join()
    assert caught.value.next_step == "ask the lab"
    host.close()


def test_a_push_at_its_time_limit_leaves_nothing(host, tmp_path, slow_source):
    remote = tmp_path / "remote"
    remote.mkdir()
    with pytest.raises(InfrastructureError, match="took longer"):
        host.push(slow_source, str(remote / "a"), timeout_s=1.0)
    wait_for(lambda: not list(remote.iterdir()), within_s=10)
    assert host.execute(["echo", "here"], timeout_s=10).stdout == "here\n"


def test_a_machine_that_vanishes_during_a_pull(own_sshd, host, tmp_path, slow_source):
    thread = when_half_copied(tmp_path, own_sshd.drop_connections)
    with pytest.raises(InfrastructureError, match="it was reachable and is gone"):
        host.pull(str(slow_source), tmp_path / "local", timeout_s=120)
    thread.join()
    assert not (tmp_path / "local").exists()
    assert not half_copies(tmp_path)


def test_what_ran_on_a_lost_connection_ends(own_sshd, host, tmp_path):
    note = tmp_path / "pid"

    def lose():
        wait_for(lambda: note.exists() and note.read_text().endswith("\n"))
        own_sshd.drop_connections()

    thread = threading.Thread(target=lose)
    thread.start()
    command = ["sh", "-c", f"echo words; sleep 0.5; sleep 60 & echo $! > {note}; wait"]
    with pytest.raises(InfrastructureError, match="is gone") as caught:
        host.execute(command, timeout_s=30)
    thread.join()
    assert "last words: words" in str(caught.value)
    assert "uptime" in caught.value.next_step
    wait_for(lambda: not runs(int(note.read_text())))


def test_a_frozen_machine_does_not_hold_a_call(own_sshd, host):
    with own_sshd.frozen():
        started = time.monotonic()
        with pytest.raises(InfrastructureError, match=r"board rb3: true did not end within 0\.5 s"):
            host.execute(["true"], timeout_s=0.5)
        assert time.monotonic() - started < 15


def test_a_shell_that_is_killed_is_no_lost_connection(host):
    killed = "kill -KILL $(ps -o ppid= -p $$)"
    with pytest.raises(InfrastructureError, match="its shell was ended from outside"):
        host.execute(["sh", "-c", killed], timeout_s=10)
    assert host.execute(["echo", "here"], timeout_s=10).stdout == "here\n"


def test_a_machine_can_come_back(own_sshd):
    own_sshd.kill()
    own_sshd.start()
    host = open_ssh("buildbox", name="board rb3", config_file=own_sshd.config_file)
    assert host.execute(["echo", "again"], timeout_s=10).stdout == "again\n"
    host.close()
