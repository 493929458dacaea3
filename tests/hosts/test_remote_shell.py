"""The scripts do what they say in each shell that is here, with and without `setsid`."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.hosts.remote_shell import (
    NO_DIRECTORY,
    Marks,
    command_script,
    pull_script,
    push_script,
    remote_path,
)

SHELLS = {
    "sh": ["/bin/sh"],
    "dash": ["dash"],
    "bash": ["bash"],
    "bash --posix": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
    "mksh": ["mksh"],
    "toybox": ["toybox", "sh"],
}
FOUND = [name for name, argv in SHELLS.items() if shutil.which(argv[0])]
MARKS = Marks("feed")
TOOLS = ("sh", "cat", "mv", "rm", "wc", "chmod", "sync", "sleep", "stat", "tar", "kill", "true")


@pytest.fixture(params=FOUND)
def shell(request):
    return SHELLS[request.param]


@pytest.fixture
def poor_path(tmp_path):
    """A PATH without setsid."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    return str(folder)


@pytest.fixture
def start(shell):
    """Starts a script; its standard input stays open."""
    started = []

    def start(script, *, path=None, leader=True):
        argv = [shutil.which(shell[0]), *shell[1:]]
        env = os.environ | ({"PATH": path} if path else {})
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=leader,
        )
        started.append(child)
        child.stdin.write(script.encode())
        child.stdin.flush()
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            stream.close()


def output(child) -> tuple[str, str, str]:
    """What came between the marks, of both streams, and the code."""
    texts = []
    for stream in (child.stdout, child.stderr):
        text = stream.read().decode()
        assert text.count("feed-begin ") == text.count("feed-end ") == 1, text
        body, _, end = text.partition("feed-begin ")[2].partition("\n")[2].partition("feed-end ")
        texts.append(body)
    return texts[0], texts[1], end.strip()


def ended(pid: int, within_s=10.0) -> bool:
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


WAYS = [(False, True), (True, True), (True, False)]
IDS = ["setsid", "leader", "neither"]


@pytest.mark.parametrize(("poor", "leader"), WAYS, ids=IDS)
def test_a_command(start, poor_path, tmp_path, poor, leader):
    command = ["sh", "-c", 'printf "$WORD"; pwd >&2; cat; exit 3']
    script = command_script(MARKS, command, {"WORD": "it's $(x)"}, str(tmp_path))
    child = start(script, path=poor_path if poor else None, leader=leader)
    assert output(child) == ("it's $(x)", f"{tmp_path}\n", "3")


@pytest.mark.parametrize(("poor", "leader"), WAYS, ids=IDS)
def test_the_end_of_the_input_ends_the_command(start, poor_path, poor, leader):
    script = command_script(MARKS, ["sh", "-c", "echo $$; exec sleep 60"], None, None)
    child = start(script, path=poor_path if poor else None, leader=leader)
    assert child.stdout.readline().startswith(b"feed-begin")
    pid = int(child.stdout.readline())
    assert not ended(pid, within_s=0.2)
    child.stdin.close()
    assert ended(pid)
    child.wait(10)


@pytest.mark.parametrize(("poor", "leader"), WAYS[:2], ids=IDS[:2])
def test_what_the_command_started_ends_with_it(start, poor_path, poor, leader):
    script = command_script(MARKS, ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], None, None)
    out, _, code = output(start(script, path=poor_path if poor else None, leader=leader))
    assert code == "0"
    assert ended(int(out))


@pytest.mark.parametrize(("poor", "leader"), WAYS, ids=IDS)
def test_codes(start, poor_path, tmp_path, poor, leader):
    for command, cwd, code in (
        (["no-such-command"], None, "127"),
        ([str(tmp_path)], None, "126"),
        (["sh", "-c", "kill -9 $$"], None, "137"),
        (["true"], str(tmp_path / "none"), NO_DIRECTORY),
        (["true"], "-", NO_DIRECTORY),
    ):
        child = start(
            command_script(MARKS, command, None, cwd),
            path=poor_path if poor else None,
            leader=leader,
        )
        assert output(child)[2] == code


def test_a_push(start, tmp_path):
    target = tmp_path / "it's\n$x"
    data = b"feed-end 1\n\0" * 1000
    child = start(push_script(MARKS, str(target), len(data), 0o100751))
    assert child.stdout.readline() == b"feed-begin ready\n"
    child.stdin.write(data)
    child.stdin.close()
    assert child.stdout.read() == b"feed-end 0\n"
    assert target.read_bytes() == data
    assert target.stat().st_mode & 0o7777 == 0o751
    assert len(list(tmp_path.iterdir())) == 1


def test_a_push_that_breaks_off_leaves_nothing(start, tmp_path):
    child = start(push_script(MARKS, str(tmp_path / "target"), 100, 0o644))
    child.stdout.readline()
    child.stdin.write(b"x" * 99)
    child.stdin.close()
    assert child.stdout.read() == b"feed-end 1\n"
    assert b"only 99 of 100 bytes came" in child.stderr.read()
    assert list(tmp_path.iterdir()) == []


def test_a_push_that_nobody_waits_for_leaves_nothing(start, tmp_path):
    child = start(push_script(MARKS, str(tmp_path / "target"), 100, 0o644))
    child.stdout.readline()
    child.stdout.close()
    child.stderr.close()
    child.stdin.close()
    child.wait(10)
    assert list(tmp_path.iterdir()) == []


def test_a_push_where_nothing_can_be_written(start, tmp_path):
    (tmp_path / "folder").mkdir()
    for target, said in (("none/x", "there is no directory"), ("folder", "is a directory")):
        child = start(push_script(MARKS, str(tmp_path / target), 1, 0o644))
        assert child.stdout.read() == b"feed-begin refused\nfeed-end 1\n"
        assert said in child.stderr.read().decode()


def test_a_pull(start, tmp_path):
    path = tmp_path / "-it's $x"
    path.write_bytes(b"\0feed")
    path.chmod(0o640)
    child = start(pull_script(MARKS, str(path)))
    assert child.stdout.read() == b"feed-begin file 640\n\0feedfeed-end 0\n"
    child = start(pull_script(MARKS, str(tmp_path)))
    assert child.stdout.readline() == b"feed-begin tree\n"
    assert child.stdout.read().endswith(b"feed-end 0\n")
    os.mkfifo(tmp_path / "fifo")
    for name, said in (("none", "does not exist"), ("fifo", "neither a file nor a directory")):
        child = start(pull_script(MARKS, str(tmp_path / name)))
        assert child.stdout.read() == b"feed-begin none\nfeed-end 1\n"
        assert said in child.stderr.read().decode()


def test_a_value_that_looks_like_a_place_stays():
    script = command_script(Marks("t"), ["@END@", "@EXPORTS@"], {"A": "@COMMAND@"}, "/@BEGIN@")
    assert "--} @END@ @EXPORTS@" in script
    assert "export A=@COMMAND@" in script
    assert "cd /@BEGIN@" in script


def test_remote_paths():
    assert remote_path("/a") == "/a"
    assert remote_path("-rf") == "./-rf"
    for bad in ("", "~/a", "~", "a\0"):
        with pytest.raises(UsageError):
            remote_path(bad)


@pytest.mark.parametrize("env", [{"A B": "x"}, {"": "x"}, {"1A": "x"}, {"A=B": "x"}, {"A": "\0"}])
def test_what_is_no_variable(env):
    with pytest.raises(UsageError, match="environment variable"):
        command_script(MARKS, ["true"], env, None)


def test_marks_differ():
    assert Marks().token != Marks().token
