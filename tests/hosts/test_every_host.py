"""What every host promises, whether it is this machine or reached over SSH."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.local import LocalHost
from pytest_qnnctx.hosts.ssh import open_ssh


@pytest.fixture(params=["local", "ssh"])
def host(request):
    if request.param == "local":
        opened = LocalHost("board here")
    else:
        sshd = request.getfixturevalue("sshd")
        opened = open_ssh("buildbox", name="board here", config_file=sshd.config_file)
    yield opened
    opened.close()


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


def test_output_exit_status_environment_and_directory(host, tmp_path):
    done = host.execute(
        ["sh", "-c", 'echo "$WORD"; pwd >&2; exit 3'],
        timeout_s=10,
        env={"WORD": "a b"},
        cwd=str(tmp_path),
    )
    assert (done.returncode, done.stdout) == (3, "a b\n")
    assert Path(done.stderr.strip()) == tmp_path.resolve()


def test_no_word_is_read_by_a_shell(host):
    words = ["$(id)", "; rm x", "a b", "*", "'", '"', "\\", "-n", ""]
    done = host.execute([*python("import sys; print(sys.argv[1:])"), *words], timeout_s=10)
    assert done.stdout == f"{words}\n"


def test_a_signal_ends_with_128_and_its_number(host):
    assert host.execute(["sh", "-c", "kill -9 $$"], timeout_s=10).returncode == 137


def test_both_streams_are_drained(host):
    write = "sys.stderr.write('e' * 65536); sys.stdout.write('o' * 65536)"
    code = f"import sys\nfor _ in range(64): {write}"
    done = host.execute(python(code), timeout_s=60)
    assert (len(done.stdout), len(done.stderr)) == (4 << 20, 4 << 20)


def test_of_endless_output_the_head_and_the_tail_are_kept(host):
    code = "print('first')\nfor _ in range(40): print('x' * (1 << 20))\nprint('last')"
    done = host.execute(python(code), timeout_s=60)
    assert len(done.stdout) < 13 << 20
    assert done.stdout.startswith("first\n")
    assert done.stdout.endswith("last\n")
    assert "bytes left out" in done.stdout


def test_output_that_is_no_utf8(host):
    done = host.execute(["printf", r"a\377b"], timeout_s=10)
    assert done.stdout == "a\ufffdb"


def test_nothing_is_read_from_the_terminal(host):
    assert host.execute(["cat"], timeout_s=10).returncode == 0


def test_at_the_time_limit_grandchildren_die_too(host):
    started = time.monotonic()
    with pytest.raises(InfrastructureError) as caught:
        host.execute(["sh", "-c", "sleep 60 & echo pid $! >&2; wait"], timeout_s=0.7)
    assert time.monotonic() - started < 8
    message = str(caught.value)
    assert "did not end within 0.7 s" in message
    assert "board here" in message
    found = re.search(r"pid (\d+)", message)
    assert found
    assert gone(int(found[1]))


def test_what_a_command_leaves_behind_ends_with_it(host):
    done = host.execute(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], timeout_s=10)
    assert gone(int(done.stdout))


@pytest.mark.parametrize("command", [[], [""], "ls -l", ["a\0b"]])
def test_what_is_no_command(host, command):
    with pytest.raises(UsageError):
        host.execute(command, timeout_s=1)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_what_is_no_time_limit(host, limit, tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(UsageError):
        host.execute(["true"], timeout_s=limit)
    with pytest.raises(UsageError):
        host.push(tmp_path / "f", str(tmp_path / "g"), timeout_s=limit)


def test_a_missing_directory_to_run_in(host, tmp_path):
    with pytest.raises(InfrastructureError, match="there is no directory"):
        host.execute(["true"], timeout_s=1, cwd=str(tmp_path / "none"))


def test_push_copies_bytes_and_mode(host, tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(os.urandom(3_000_000))
    source.chmod(0o751)
    target.write_text("old")
    host.push(source, str(target), timeout_s=30)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o751
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_push_that_cannot_be_written(host, tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "directory").mkdir()
    for target in (tmp_path / "none" / "b", tmp_path / "directory"):
        with pytest.raises(InfrastructureError, match="board here: copying"):
            host.push(tmp_path / "a", str(target), timeout_s=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "directory"]


def test_only_files_are_pushed(host, tmp_path):
    os.mkfifo(tmp_path / "fifo")  # opening it would wait for ever
    for source in (tmp_path / "none", tmp_path, tmp_path / "fifo"):
        with pytest.raises(UsageError, match="there is no file"):
            host.push(source, str(tmp_path / "b"), timeout_s=5)


def test_pull_brings_a_file_or_a_tree(host, tmp_path):
    remote = tmp_path / "remote"
    (remote / "Result_0").mkdir(parents=True)
    (remote / "Result_0" / "out.raw").write_bytes(b"\0\1")
    (remote / "log").write_text("text")
    host.pull(str(remote / "log"), tmp_path / "log", timeout_s=5)
    host.pull(str(remote), tmp_path / "local", timeout_s=5)
    assert (tmp_path / "log").read_text() == "text"
    assert (tmp_path / "local" / "Result_0" / "out.raw").read_bytes() == b"\0\1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "log", "remote"]


def test_a_tree_is_not_mixed_into_another(host, tmp_path):
    for name in ("remote", "local"):
        (tmp_path / name).mkdir()
    (tmp_path / "local" / "mine").write_text("")
    with pytest.raises(UsageError, match="exists already"):
        host.pull(str(tmp_path / "remote"), tmp_path / "local", timeout_s=5)
    assert (tmp_path / "local" / "mine").exists()


def test_a_tree_that_cannot_be_copied_whole_is_not_copied(host, tmp_path):
    remote = tmp_path / "remote"
    remote.mkdir()
    (remote / "good").write_text("")
    os.mkfifo(remote / "fifo")
    with pytest.raises(InfrastructureError, match="copying"):
        host.pull(str(remote), tmp_path / "local", timeout_s=5)
    with pytest.raises(InfrastructureError, match="copying"):
        host.pull(str(tmp_path / "none"), tmp_path / "local", timeout_s=5)
    assert [path.name for path in tmp_path.iterdir()] == ["remote"]


def test_a_command_that_cannot_run_ends_as_in_a_shell(host, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    missing = host.execute(["no-such-command-here"], timeout_s=10)
    assert (missing.returncode, missing.stdout) == (127, "")
    assert "no-such-command-here" in missing.stderr
    assert host.execute([str(tmp_path / "none")], timeout_s=10).returncode == 127
    assert host.execute([str(plain)], timeout_s=10).returncode == 126
    assert host.execute([str(tmp_path)], timeout_s=10).returncode == 126


def test_a_push_that_takes_too_long_leaves_what_was_there(host, tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"new" * 100)
    target.write_text("old")
    with pytest.raises(InfrastructureError, match="took longer"):
        host.push(source, str(target), timeout_s=1e-9)
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_an_existing_file_is_replaced_by_a_pull(host, tmp_path):
    (tmp_path / "remote").write_bytes(bytes(range(256)) * 5000)
    (tmp_path / "remote").chmod(0o640)
    (tmp_path / "local").write_text("old")
    host.pull(str(tmp_path / "remote"), tmp_path / "local", timeout_s=10)
    assert (tmp_path / "local").read_bytes() == bytes(range(256)) * 5000
    assert (tmp_path / "local").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "remote"]


HOSTILE = [
    "a b",
    "it's",
    '"; touch x; "',
    "$(touch x)",
    "`touch x`",
    "-rf",
    "nl\nnl",
    "\\",
    "@END@",
    "é",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_no_path_is_read_by_a_shell(host, tmp_path, word):
    (tmp_path / "source").write_bytes(b"\0\n\xff")
    folder = tmp_path / word
    folder.mkdir()
    host.push(tmp_path / "source", str(folder / word), timeout_s=10)
    host.pull(str(folder / word), tmp_path / "file", timeout_s=10)
    host.pull(str(folder), tmp_path / "tree", timeout_s=10)
    done = host.execute(["ls", "-A"], timeout_s=10, cwd=str(folder))
    assert (tmp_path / "file").read_bytes() == (tmp_path / "tree" / word).read_bytes()
    assert done.stdout == f"{word}\n"
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("word", HOSTILE)
def test_no_value_of_a_variable_is_read_by_a_shell(host, word):
    done = host.execute(
        python("import os; print(ascii(os.environ['W']))"), timeout_s=10, env={"W": word}
    )
    assert done.stdout == f"{word!a}\n"


def test_empty_files_and_directories(host, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    host.push(tmp_path / "empty", str(tmp_path / "pushed"), timeout_s=10)
    host.pull(str(tmp_path / "pushed"), tmp_path / "pulled", timeout_s=10)
    host.pull(str(tmp_path / "folder"), tmp_path / "tree", timeout_s=10)
    assert (tmp_path / "pulled").read_bytes() == b""
    assert (tmp_path / "tree" / "inner").is_dir()


def test_links_in_a_tree_stay_links_and_hard_links_become_files(host, tmp_path):
    remote = tmp_path / "remote"
    (remote / "deep").mkdir(parents=True)
    (remote / "deep" / "one").write_text("text")
    (remote / "deep" / "two").hardlink_to(remote / "deep" / "one")
    (remote / "link").symlink_to("/nowhere/at all")
    (remote / "deep" / "one").chmod(0o750)
    host.pull(str(remote), tmp_path / "local", timeout_s=10)
    assert (tmp_path / "local" / "link").readlink() == Path("/nowhere/at all")
    assert (tmp_path / "local" / "deep" / "two").read_text() == "text"
    assert (tmp_path / "local" / "deep" / "one").stat().st_mode & 0o777 == 0o750


def test_a_file_is_not_pulled_where_there_is_none(host, tmp_path):
    with pytest.raises(InfrastructureError, match="board here: copying"):
        host.pull(str(tmp_path / "none"), tmp_path / "local", timeout_s=5)
    assert list(tmp_path.iterdir()) == []


def test_one_call_after_the_other_and_two_at_once(host):
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(host.execute, ["echo", str(n)], timeout_s=30) for n in range(8)]
        assert [call.result().stdout for call in calls] == [f"{n}\n" for n in range(8)]


def test_a_closed_host_refuses(host, tmp_path):
    (tmp_path / "a").write_text("")
    host.close()
    host.close()
    with pytest.raises(InfrastructureError, match="closed"):
        host.execute(["true"], timeout_s=1)
    with pytest.raises(InfrastructureError, match="closed"):
        host.push(tmp_path / "a", str(tmp_path / "b"), timeout_s=1)
    with pytest.raises(InfrastructureError, match="closed"):
        host.pull(str(tmp_path / "a"), tmp_path / "b", timeout_s=1)


OPEN = {
    "local": "from pytest_qnnctx.hosts.local import LocalHost\nhost = LocalHost('x')\n",
    "ssh": "from pytest_qnnctx.hosts.ssh import open_ssh\nfrom pathlib import Path\n"
    "host = open_ssh('buildbox', name='x', config_file=Path({config!r}))\n",
}


@pytest.mark.parametrize(("kind", "sent"), [("local", "INT"), ("ssh", "INT"), ("ssh", "KILL")])
def test_an_interrupt_ends_the_command(request, tmp_path, kind, sent):
    note = tmp_path / "pid"
    config = str(request.getfixturevalue("sshd").config_file) if kind == "ssh" else ""
    code = OPEN[kind].format(config=config) + (
        f"host.execute(['sh', '-c', 'echo $$ > {note}; sleep 60'], timeout_s=50)"
    )
    child = subprocess.Popen(python(code), stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(getattr(signal, f"SIG{sent}"))
    _, stderr = child.communicate(timeout=20)
    assert (b"KeyboardInterrupt" in stderr) == (sent == "INT")
    assert gone(int(note.read_text()))
