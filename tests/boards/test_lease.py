from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from pytest_qnnctx.boards.lease import acquire, acquire_any, read_holder
from pytest_qnnctx.errors import InfrastructureError, UsageError

HOLDER = """
import sys, time
from pathlib import Path
from pytest_qnnctx.boards.board import Board
from pytest_qnnctx.boards.lease import acquire
from pytest_qnnctx.boards.target import target_of
board = Board("rb3", target_of("qcs6490", "v68"), "local", "netrun", "/nowhere")
lease = acquire(board, lock_dir=Path(sys.argv[1]), timeout_s=5, note="nightly run")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def locks(tmp_path):
    return tmp_path / "locks"


@pytest.fixture
def holder(locks):
    """Another process that holds the board ``rb3``."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(locks)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_held_board_names_its_holder(make_board, locks, holder):
    started = time.monotonic()
    with pytest.raises(InfrastructureError) as caught:
        acquire(make_board("rb3"), lock_dir=locks, timeout_s=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    message = str(caught.value)
    assert f"rb3: held by process {holder.pid} on" in message
    assert "(nightly run)" in message
    assert "--qnnctx-lease-timeout" in message


def test_the_lease_ends_with_its_holder(make_board, locks, holder):
    holder.send_signal(signal.SIGKILL)
    with acquire(make_board("rb3"), lock_dir=locks, timeout_s=5, note="next") as lease:
        assert lease.board.name == "rb3"
        found = read_holder(lease.board, locks)
        assert found is not None
        assert (found.pid, found.what) == (os.getpid(), "next")


def test_one_process_cannot_hold_a_board_twice(make_board, locks):
    board = make_board()
    with (
        acquire(board, lock_dir=locks, timeout_s=0),
        pytest.raises(InfrastructureError, match=f"process {os.getpid()} "),
    ):
        acquire(board, lock_dir=locks, timeout_s=0)


def test_a_lease_that_is_given_back_is_free_and_forgotten(make_board, locks):
    board = make_board()
    lease = acquire(board, lock_dir=locks, timeout_s=0)
    lease.close()
    assert read_holder(board, locks) is None
    again = acquire(board, lock_dir=locks, timeout_s=0)
    lease.close()  # the second close must not end somebody else's lease
    with pytest.raises(InfrastructureError):
        acquire(board, lock_dir=locks, timeout_s=0)
    again.close()


def test_whoever_waits_gets_it_when_it_is_free(make_board, locks):
    board = make_board()
    lease = acquire(board, lock_dir=locks, timeout_s=0)
    timer = threading.Timer(0.4, lease.close)
    timer.start()
    with acquire(board, lock_dir=locks, timeout_s=10) as second:
        assert 0.2 < second.waited_s < 9
    timer.join()


def test_the_first_free_one_of_several(make_board, locks):
    boards = [make_board(name) for name in ("a", "b", "c")]
    first = acquire_any(boards, lock_dir=locks, timeout_s=0)
    second = acquire_any(boards, lock_dir=locks, timeout_s=0)
    assert (first.board.name, second.board.name) == ("a", "b")
    with pytest.raises(InfrastructureError, match=r"a: held by .*; b: held by "):
        acquire_any(boards[:2], lock_dir=locks, timeout_s=0)
    first.close()
    with acquire_any(boards, lock_dir=locks, timeout_s=0) as third:
        assert third.board.name == "a"
    second.close()


def test_a_shared_board_is_held_by_any_number(make_board, locks):
    board = make_board(shared=True)
    leases = [acquire(board, lock_dir=locks, timeout_s=0) for _ in range(3)]
    assert not locks.exists()
    for lease in leases:
        lease.close()


@pytest.mark.parametrize("timeout", [float("nan"), -1.0])
def test_a_time_limit_that_is_no_number_does_not_wait_for_ever(make_board, locks, timeout):
    board = make_board()
    with acquire(board, lock_dir=locks, timeout_s=0), pytest.raises(InfrastructureError):
        acquire(board, lock_dir=locks, timeout_s=timeout)


def test_a_note_of_the_dead_or_a_damaged_one_names_nobody(make_board, locks):
    board = make_board()
    locks.mkdir()
    note = locks / "here.holder.json"
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    host = os.uname().nodename
    note.write_text(json.dumps({"pid": child.pid, "host": host, "since": "", "what": ""}))
    assert read_holder(board, locks) is None
    for damaged in (
        "",
        "{",
        "[]",
        '{"pid": "x"}',
        '{"pid": -1, "host": "", "since": "", "what": ""}',
    ):
        note.write_text(damaged)
        assert read_holder(board, locks) is None


def test_locks_that_cannot_be_written(make_board, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="here cannot be leased"):
        acquire(make_board(), lock_dir=tmp_path / "file", timeout_s=0)


def test_no_board_to_lease(locks):
    with pytest.raises(UsageError):
        acquire_any([], lock_dir=locks, timeout_s=0)
