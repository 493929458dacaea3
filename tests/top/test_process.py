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


def test_ticks_tell_the_seconds():
    ticks: list[float] = []
    python("import time; time.sleep(1.3)", on_tick=ticks.append)
    assert ticks == sorted(ticks)
    assert ticks
