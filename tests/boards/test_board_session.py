from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_qnnctx.boards.lease import acquire
from pytest_qnnctx.boards.local import open_local
from pytest_qnnctx.boards.session import open_any_session, open_session
from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.local import LocalHost

TWO_DAYS_S = 2 * 86400


class Faulty(LocalHost):
    """A board that fails on purpose: ``dead`` refuses all, ``damage`` alters what is pushed,
    ``path`` is all that its shell finds commands in.
    """

    dead = False
    damage = False
    path: str | None = None
    closed = 0

    def execute(self, argv, **options):
        if self.dead:
            raise InfrastructureError("the link is down")
        if self.path is not None:
            options["env"] = {"PATH": self.path}
        return super().execute(argv, **options)

    def push(self, local, remote, *, timeout_s):
        super().push(local, remote, timeout_s=timeout_s)
        if self.damage:
            raw = bytearray(Path(remote).read_bytes())
            raw[0] ^= 1
            Path(remote).write_bytes(raw)

    def close(self):
        self.closed += 1
        super().close()


@pytest.fixture
def locks(tmp_path):
    return tmp_path / "locks"


@pytest.fixture
def binary(tmp_path) -> tuple[Path, str]:
    path = tmp_path / "net -w8a8 $(id)'.bin"
    path.write_bytes(os.urandom(50_000))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def open_here(make_board, locks):
    """Opens sessions on one board (shared, so that several may be open at once)."""
    opened = []

    def open_here(factory=open_local, **more):
        board = make_board(shared=True, **more)
        session = open_session(board, factory, lock_dir=locks, lease_timeout_s=1)
        opened.append(session)
        return session

    yield open_here
    for session in opened:
        session.close()


def free(board, locks) -> bool:
    try:
        acquire(board, lock_dir=locks, timeout_s=0).close()
    except InfrastructureError:
        return False
    return True


def test_a_session_has_a_private_directory_until_it_closes(make_board, locks):
    board = make_board()
    with open_session(board, open_local, lock_dir=locks, lease_timeout_s=1) as session:
        workdir = Path(session.workdir)
        assert stat.S_IMODE(workdir.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(board.staging_dir).stat().st_mode) == 0o700
        assert not free(board, locks)
        (workdir / "left behind").write_text("")
    assert not workdir.exists()
    assert free(board, locks)
    session.close()
    assert session.problems == []


def test_sessions_on_one_board_do_not_share_their_directories(open_here):
    assert open_here().workdir != open_here().workdir


def test_any_session_takes_a_free_board(make_board, locks):
    boards = [make_board("a"), make_board("b")]
    options = {"lock_dir": locks, "lease_timeout_s": 0}
    with open_any_session(boards, lambda _: open_local, **options) as first:
        assert first.board.name == "a"
        with open_any_session(boards, lambda _: open_local, note="x", **options) as second:
            assert second.board.name == "b"


def test_a_staged_file_has_its_bytes_and_stays_for_later(open_here, binary):
    path, sha = binary
    session = open_here()
    remote = Path(session.stage(path, sha))
    assert remote.read_bytes() == path.read_bytes()
    assert remote.parent.name == sha
    assert remote.name == path.name
    before = remote.stat()
    assert open_here().stage(path, sha) == str(remote)
    assert remote.stat().st_ino == before.st_ino
    assert list(Path(session.workdir).iterdir()) == []


@pytest.mark.parametrize("trick", ["bytes", "empty", "link", "directory", "link to directory"])
def test_what_is_there_is_never_trusted_by_its_name_size_or_time(
    open_here, binary, trick, tmp_path
):
    path, sha = binary
    session = open_here()
    remote = Path(session.stage(path, sha))
    before = remote.stat()
    elsewhere = tmp_path / "elsewhere"
    if trick == "bytes":
        remote.write_bytes(bytes(before.st_size))
        os.utime(remote, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif trick == "empty":
        remote.write_bytes(b"")
    elif trick == "link":
        remote.rename(elsewhere)
        remote.symlink_to(elsewhere)
    else:
        remote.unlink()
        elsewhere.mkdir()
        (remote.mkdir if trick == "directory" else lambda: remote.symlink_to(elsewhere))()
    assert session.stage(path, sha) == str(remote)
    assert not remote.is_symlink()
    assert remote.read_bytes() == path.read_bytes()
    assert trick != "link to directory" or list(elsewhere.iterdir()) == []


def test_a_copy_that_was_damaged_on_its_way_is_refused_and_removed(open_here, binary):
    path, sha = binary
    session = open_here(lambda board: Faulty(board.name))
    session.transport.damage = True
    with pytest.raises(InfrastructureError, match="damaged on its way"):
        session.stage(path, sha)
    left = [found for found in Path(session.board.staging_dir).rglob("*") if found.is_file()]
    assert left == []
    session.transport.damage = False
    assert Path(session.stage(path, sha)).read_bytes() == path.read_bytes()


def test_a_file_that_changed_on_this_host_is_told_from_a_damaged_copy(open_here, binary):
    path, sha = binary
    path.write_bytes(b"another")
    with pytest.raises(InfrastructureError, match="is not what was built and judged"):
        open_here().stage(path, sha)


def test_a_file_that_is_gone_or_a_hash_that_is_none(open_here, tmp_path, binary):
    session = open_here()
    with pytest.raises(InfrastructureError, match="is gone"):
        session.stage(tmp_path / "none.bin", "0" * 64)
    for sha in ("", "abc", "../" + "0" * 61, binary[1].upper() + "\n"):
        with pytest.raises(UsageError, match="is no sha256"):
            session.stage(binary[0], sha)


@pytest.mark.parametrize("limit", [0, 1e-9, float("nan")])
def test_staging_has_a_time_limit(open_here, binary, limit):
    with pytest.raises(InfrastructureError, match="did not end within"):
        open_here().stage(*binary, timeout_s=limit)


def test_a_workdir_that_vanished_is_the_boards_fault(open_here, binary):
    session = open_here()
    shutil.rmtree(session.workdir)
    with pytest.raises(InfrastructureError, match="is gone"):
        session.stage(*binary)


def test_a_board_without_find_is_not_swept_and_says_so(open_here, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "ls", "mkdir", "rm"):
        (tools / name).symlink_to(shutil.which(name))

    def simple(board):
        transport = Faulty(board.name)
        transport.path = str(tools)
        return transport

    session = open_here(simple)
    assert len(session.problems) == 1
    assert "board here: find is missing" in session.problems[0]


@pytest.mark.parametrize("hasher", ["sha256sum", "toybox", "busybox", "python3", None])
def test_the_board_hashes_with_what_it_has(open_here, binary, tmp_path, hasher):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "ls", "mkdir", "find", "touch", "rm", "mv"):
        (tools / name).symlink_to(shutil.which(name))
    if hasher == "python3":
        (tools / "python3").symlink_to(os.path.realpath(sys.executable))
    elif hasher == "sha256sum":
        (tools / "sha256sum").symlink_to(shutil.which("sha256sum"))
    elif hasher:  # a multi-call binary whose applet is named by its first argument
        (tools / hasher).write_text(f'#!{tools}/sh\nexec "{shutil.which("sha256sum")}"\n')
        (tools / hasher).chmod(0o755)
    session = open_here(lambda board: Faulty(board.name))
    session.transport.path = str(tools)
    if hasher:
        remote = Path(session.stage(*binary))
        before = remote.stat().st_ino
        assert session.stage(*binary) == str(remote)
        assert remote.stat().st_ino == before
    else:
        with pytest.raises(InfrastructureError, match="there is no sha256sum"):
            session.stage(*binary)


STAGER = """
import json, sys, time
from pathlib import Path
from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.local import open_local
from pytest_qnnctx.boards.session import open_session
from pytest_qnnctx.boards.target import target_of
staging, file, sha, start = sys.argv[1:]
board = Board("sim", target_of("qcs6490", "v68"), "local", "netrun", staging, shared=True)
with open_session(board, open_local, lock_dir=Path(staging), lease_timeout_s=1) as session:
    while time.time() < float(start):
        pass
    for _ in range(3):
        remote = session.stage(Path(file), sha)
        print(json.dumps([remote, Path(remote).read_bytes() == Path(file).read_bytes()]))
    assert not session.problems, session.problems
"""


def test_two_processes_stage_one_file_at_once(binary, tmp_path):
    path, sha = binary
    staging = tmp_path / "staging"
    start = time.time() + 1.0
    command = [sys.executable, "-c", STAGER, str(staging), str(path), sha, str(start)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    seen = [json.loads(line) for output in outputs for line in output.splitlines()]
    assert seen == [[str(staging / "by-sha256" / sha / path.name), True]] * 6
    assert [p.name for p in (staging / "by-sha256" / sha).iterdir()] == [path.name]
    assert list((staging / "work").iterdir()) == []


def test_a_session_that_was_killed_leaves_no_half_file_and_is_swept_a_day_later(
    open_here, binary, tmp_path
):
    path, sha = binary
    area = tmp_path / "staging"
    open_here().close()
    dead, recent = area / "work" / "dead", area / "work" / "recent"
    stale = area / "by-sha256" / ("0" * 64)
    for directory in (dead, recent, stale):
        directory.mkdir()
        (directory / "incoming-1").write_text("half")
    old = time.time() - TWO_DAYS_S
    os.utime(dead, (old, old))
    os.utime(stale, (old, old))
    session = open_here()
    assert sorted(p.name for p in (area / "work").iterdir()) == sorted(
        ["recent", Path(session.workdir).name]
    )
    assert list((area / "by-sha256").iterdir()) == []
    assert session.problems == []
    remote = Path(session.stage(path, sha))
    os.utime(remote.parent, (old, old))
    session.stage(path, sha)  # staging marks it as used
    open_here()
    assert remote.exists()


def foreign_directory(tmp_path: Path) -> Path:
    """A directory of another user: root's own for all but root, who can give one away."""
    if os.geteuid() != 0:
        return Path("/usr")
    path = tmp_path / "foreign"
    path.mkdir()
    os.chown(path, 65534, 65534)
    return path


def open_to_all(tmp_path: Path) -> Path:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o777)
    return path


def link(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    return tmp_path / "link"


def inner_link(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "area").mkdir()
    (tmp_path / "area" / "by-sha256").symlink_to(tmp_path / "real")
    return tmp_path / "area"


def plain_file(tmp_path: Path) -> Path:
    (tmp_path / "plain").write_text("")
    return tmp_path / "plain"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (foreign_directory, "belongs to another user"),
        (open_to_all, "can be written by every user"),
        (link, "is a symbolic link"),
        (inner_link, "is a symbolic link"),
        (plain_file, "cannot be used"),
    ],
)
def test_a_staging_directory_that_others_can_alter_is_refused(
    make_board, locks, tmp_path, make, reason
):
    board = make_board(staging_dir=str(make(tmp_path)))
    transports = []

    def factory(board):
        transports.append(Faulty(board.name))
        return transports[-1]

    with pytest.raises(InfrastructureError, match=reason) as caught:
        open_session(board, factory, lock_dir=locks, lease_timeout_s=1)
    assert "set staging_dir" in str(caught.value)
    assert transports[0].closed == 1
    assert free(board, locks)


def test_a_sticky_directory_of_ones_own_will_do(open_here, tmp_path, binary):
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    session = open_here(staging_dir=str(tmp_path / "sticky"))
    assert Path(session.stage(*binary)).exists()


def test_a_board_that_cannot_be_reached_gives_its_lease_back(make_board, locks):
    def unreachable(board):
        raise InfrastructureError(f"{board.name} does not answer")

    board = make_board()
    with pytest.raises(InfrastructureError, match="here does not answer"):
        open_session(board, unreachable, lock_dir=locks, lease_timeout_s=1)
    assert free(board, locks)


def test_a_board_that_dies_is_closed_all_the_same_and_says_what_stayed(make_board, locks):
    board = make_board()
    session = open_session(
        board, lambda board: Faulty(board.name), lock_dir=locks, lease_timeout_s=1
    )
    session.transport.dead = True
    session.close()
    session.close()
    assert len(session.problems) == 1
    assert "cleaning up failed: the link is down" in session.problems[0]
    assert session.transport.closed == 1
    assert free(board, locks)


def test_what_fails_while_giving_up_is_told_with_the_first_error(make_board, locks):
    def dead(board):
        transport = Faulty(board.name)
        transport.dead = True
        return transport

    with pytest.raises(InfrastructureError, match="the link is down") as caught:
        open_session(make_board(), dead, lock_dir=locks, lease_timeout_s=1)
    assert any("cleaning up failed" in note for note in caught.value.__notes__)
