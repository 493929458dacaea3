from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.local import LocalHost


@pytest.fixture
def transport():
    return LocalHost("board here")


def gone(pid: int, within_s: float = 5.0) -> bool:
    """Whether the process ends (or is a zombie that nobody has waited for yet) soon."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_exit_status_environment_and_directory(transport, tmp_path):
    done = transport.execute(
        ["sh", "-c", 'echo "$WORD"; pwd >&2; exit 3'],
        timeout_s=10,
        env={"WORD": "a b"},
        cwd=str(tmp_path),
    )
    assert (done.returncode, done.stdout) == (3, "a b\n")
    assert Path(done.stderr.strip()) == tmp_path.resolve()


def test_no_word_is_read_by_a_shell(transport):
    words = ["$(id)", "; rm x", "a b", "*", "'", '"', "\\", "-n", ""]
    done = transport.execute([*python("import sys; print(sys.argv[1:])"), *words], timeout_s=10)
    assert done.stdout == f"{words}\n"


def test_a_signal_ends_with_128_and_its_number(transport):
    assert transport.execute(["sh", "-c", "kill -9 $$"], timeout_s=10).returncode == 137


def test_a_command_that_cannot_run_ends_as_in_a_shell(transport, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    missing = transport.execute(["no-such-command-here"], timeout_s=10)
    assert (missing.returncode, missing.stdout) == (127, "")
    assert "no-such-command-here" in missing.stderr
    assert transport.execute([str(plain)], timeout_s=10).returncode == 126
    plain.chmod(0o755)
    assert transport.execute([str(plain)], timeout_s=10).returncode == 126


def test_both_streams_are_drained(transport):
    write = "sys.stderr.write('e' * 65536); sys.stdout.write('o' * 65536)"
    code = f"import sys\nfor _ in range(64): {write}"
    done = transport.execute(python(code), timeout_s=60)
    assert (len(done.stdout), len(done.stderr)) == (4 << 20, 4 << 20)


def test_of_endless_output_the_head_and_the_tail_are_kept(transport):
    code = "print('first')\nfor _ in range(40): print('x' * (1 << 20))\nprint('last')"
    done = transport.execute(python(code), timeout_s=60)
    assert len(done.stdout) < 13 << 20
    assert done.stdout.startswith("first\n")
    assert done.stdout.endswith("last\n")
    assert "bytes left out" in done.stdout


def test_output_that_is_no_utf8(transport):
    done = transport.execute(["printf", r"a\377b"], timeout_s=10)
    assert done.stdout == "a\ufffdb"


def test_nothing_is_read_from_the_terminal(transport):
    assert transport.execute(["cat"], timeout_s=10).returncode == 0


def test_at_the_time_limit_grandchildren_die_too(transport):
    started = time.monotonic()
    with pytest.raises(InfrastructureError) as caught:
        transport.execute(["sh", "-c", "sleep 60 & echo pid $! >&2; wait"], timeout_s=0.7)
    assert time.monotonic() - started < 8
    message = str(caught.value)
    assert "did not end within 0.7 s" in message
    assert "board here" in message
    found = re.search(r"pid (\d+)", message)
    assert found
    assert gone(int(found[1]))


def test_what_a_command_leaves_behind_ends_with_it(transport):
    done = transport.execute(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], timeout_s=10)
    assert gone(int(done.stdout))


def test_an_interrupt_ends_the_command(tmp_path):
    note = tmp_path / "pid"
    code = (
        "from pytest_qnnctx.hosts.local import LocalHost\n"
        f"LocalHost('x').execute(['sh', '-c', 'echo $$ > {note}; sleep 60'], timeout_s=50)"
    )
    child = subprocess.Popen(python(code), stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=20)
    assert b"KeyboardInterrupt" in stderr
    assert gone(int(note.read_text()))


@pytest.mark.parametrize("command", [[], [""], "ls -l", ["a\0b"]])
def test_what_is_no_command(transport, command):
    with pytest.raises(UsageError):
        transport.execute(command, timeout_s=1)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_what_is_no_time_limit(transport, limit, tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(UsageError):
        transport.execute(["true"], timeout_s=limit)
    with pytest.raises(UsageError):
        transport.push(tmp_path / "f", str(tmp_path / "g"), timeout_s=limit)


def test_a_missing_directory_to_run_in(transport, tmp_path):
    with pytest.raises(InfrastructureError, match="there is no directory"):
        transport.execute(["true"], timeout_s=1, cwd=str(tmp_path / "none"))


def test_push_copies_bytes_and_mode(transport, tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(os.urandom(3_000_000))
    source.chmod(0o751)
    target.write_text("old")
    transport.push(source, str(target), timeout_s=30)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o751
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_push_that_takes_too_long_leaves_what_was_there(transport, tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"new" * 100)
    target.write_text("old")
    with pytest.raises(InfrastructureError, match="took longer"):
        transport.push(source, str(target), timeout_s=1e-9)
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_push_that_cannot_be_written(transport, tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "directory").mkdir()
    for target in (tmp_path / "none" / "b", tmp_path / "directory"):
        with pytest.raises(InfrastructureError, match="board here: copying"):
            transport.push(tmp_path / "a", str(target), timeout_s=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "directory"]


def test_only_files_are_pushed(transport, tmp_path):
    os.mkfifo(tmp_path / "fifo")  # opening it would wait for ever
    for source in (tmp_path / "none", tmp_path, tmp_path / "fifo"):
        with pytest.raises(UsageError, match="there is no file"):
            transport.push(source, str(tmp_path / "b"), timeout_s=5)


def test_pull_brings_a_file_or_a_tree(transport, tmp_path):
    remote = tmp_path / "remote"
    (remote / "Result_0").mkdir(parents=True)
    (remote / "Result_0" / "out.raw").write_bytes(b"\0\1")
    (remote / "log").write_text("text")
    transport.pull(str(remote / "log"), tmp_path / "log", timeout_s=5)
    transport.pull(str(remote), tmp_path / "local", timeout_s=5)
    assert (tmp_path / "log").read_text() == "text"
    assert (tmp_path / "local" / "Result_0" / "out.raw").read_bytes() == b"\0\1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "log", "remote"]


def test_a_tree_is_not_mixed_into_another(transport, tmp_path):
    for name in ("remote", "local"):
        (tmp_path / name).mkdir()
    (tmp_path / "local" / "mine").write_text("")
    with pytest.raises(UsageError, match="exists already"):
        transport.pull(str(tmp_path / "remote"), tmp_path / "local", timeout_s=5)
    assert (tmp_path / "local" / "mine").exists()


def test_a_tree_that_cannot_be_copied_whole_is_not_copied(transport, tmp_path):
    remote = tmp_path / "remote"
    remote.mkdir()
    (remote / "good").write_text("")
    os.mkfifo(remote / "fifo")
    with pytest.raises(InfrastructureError, match="copying"):
        transport.pull(str(remote), tmp_path / "local", timeout_s=5)
    with pytest.raises(InfrastructureError, match="copying"):
        transport.pull(str(tmp_path / "none"), tmp_path / "local", timeout_s=5)
    assert [path.name for path in tmp_path.iterdir()] == ["remote"]


def test_a_closed_transport_refuses():
    transport = LocalHost("here")
    transport.close()
    transport.close()
    with pytest.raises(InfrastructureError, match="closed"):
        transport.execute(["true"], timeout_s=1)
