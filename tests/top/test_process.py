"""Children end in time, with all that they started, and nothing that they say is lost or blocks."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from pytest_qnnctx.process import KEPT_BYTES, run_child


def python(code: str, **options) -> object:
    options.setdefault("time_limit_s", 30)
    return run_child([sys.executable, "-c", code], **options)


def test_both_streams_are_drained_at_once():
    done = python(
        "import sys\nsys.stderr.write('e' * 4_000_000); sys.stdout.write('o' * 4_000_000)"
    )
    assert (done.returncode, len(done.stdout), len(done.stderr)) == (0, 4_000_000, 4_000_000)


def test_the_time_limit_ends_grandchildren_too(tmp_path):
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(100)"
    )
    started = time.monotonic()
    done = python(code, time_limit_s=2)
    assert done.timed_out
    assert "time limit" in done.ending
    assert time.monotonic() - started < 20
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", pid_file.read_text()],
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    assert not state.strip() or state.startswith("Z")


def test_a_signal_is_named():
    done = python("import os; os.abort()")
    assert done.returncode == -6
    assert done.ending == "it was killed by SIGABRT"


def test_of_endless_output_head_and_tail_are_kept():
    done = python(
        "import sys\nsys.stdout.write('head' + 'x' * 30_000_000 + 'tail')", time_limit_s=60
    )
    assert done.stdout.startswith("head")
    assert done.stdout.endswith("tail")
    assert len(done.stdout) < 2 * KEPT_BYTES
    assert "left out" in done.stdout


def test_an_exception_while_waiting_ends_the_child(tmp_path):
    def tick(seconds: float) -> None:
        raise KeyboardInterrupt

    pid_file = tmp_path / "pid"
    write_pid = f"import os, time; open({str(pid_file)!r}, 'w').write(f'{{os.getpid()}}')"
    with pytest.raises(KeyboardInterrupt):
        python(
            f"{write_pid}; time.sleep(99)",
            on_tick=lambda seconds: tick(seconds) if pid_file.exists() else None,
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


@pytest.mark.parametrize("where", ["started", "killing"])
def test_an_interrupt_at_the_worst_moment_ends_the_child_too(tmp_path, where):
    # In a process of its own: the signal is real, and comes just after the child has been started,
    # or when it is about to be killed for another reason.
    code = f"""
import os, signal, subprocess, sys
from pytest_qnnctx.process import run_child

def interrupted(function):
    def call(*args, **more):
        before = function(*args, **more) if {where!r} == "started" else None
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(100))  # bytecodes, between which Python looks for signals
        return function(*args, **more) if {where!r} == "killing" else before
    return call

class Popen(subprocess.Popen):
    def __init__(self, *args, **more):
        interrupted(super().__init__)(*args, **more) if {where!r} == "started" else super(
        ).__init__(*args, **more)
        print(self.pid, flush=True)

subprocess.Popen = Popen
if {where!r} == "killing":
    os.killpg = interrupted(os.killpg)
run_child(["sleep", "60"], time_limit_s=0.2 if {where!r} == "killing" else 50)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=40
    )
    assert "KeyboardInterrupt" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_ticks_tell_the_seconds():
    ticks: list[float] = []
    python("import time; time.sleep(1.3)", on_tick=ticks.append)
    assert ticks == sorted(ticks)
    assert ticks
