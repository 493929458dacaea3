"""Whose fault an ending is: the binary's (ProductFailure) or the board's (InfrastructureError)."""

from __future__ import annotations

import pytest

from pytest_qnnctx.errors import InfrastructureError, ProductFailure
from pytest_qnnctx.hosts.host import Completed
from pytest_qnnctx.run.netrun_endings import error_of
from pytest_qnnctx.run.refusals import why_refused


@pytest.mark.parametrize(
    ("log", "board_at_fault", "said"),
    [
        ("Could not create context from binary for context index = 2 : err 5000", False, "5000"),
        ("<E> Failed to create context from binary with err 0x138d", False, "5005"),
        ("Request feature arch with value 75 unsupported\n err 0x138d", False, "arch 75"),
        ("<E> Request feature vtcm size with value 8 not supported", False, "vtcm size 8"),
        ("<E> Can't read future blob. Newest blob version supported: 3.1.x.", False, "newer QNN"),
        ("Could not create context from binary : err 1002", True, "memory"),
        ("fastrpc memory map for fd: 7 with length: 9 failed with error: 0x1", True, "memory"),
        ("QNN_COMMON_ERROR_MEM_ALLOC", True, "memory"),
        ("Transport layer setup failed: 14001\nCould not create ... err 5000", True, "14001"),
        ('"Failed to free device: 14003"', True, "14003"),
        ("DspTransport.openSession qnn_open failed, 0x80000406, prio 100", True, "skel"),
        ("Failed to create transport for device, error: 4000", True, "4000"),
        ("Stub lib id mismatch: expected (v2.28.0), detected (v2.25.17)", True, "one version"),
        ("Failed to get context binary info.", False, "damaged"),
        ("read metadata: err 30010", False, "damaged"),
        ("g context node name not exists in table qnn_models.", False, "no graph"),
        ("something new", False, "no reason"),
        ("2026-12-03 06:23:54.118346561 took 5000 us, 14001 bytes", False, "no reason"),
    ],
)
def test_refusals(log, board_at_fault, said):
    refusal = why_refused(log)
    assert refusal.board_at_fault is board_at_fault
    assert said in refusal.reason
    assert refusal.next_step


def ended(code, stderr=""):
    done = Completed(("netrun",), code, "", stderr)
    return error_of(done, board="rb3", binary="m.bin", python="python3")


def crash(name, phase, place=""):
    where = f"(m.bin, graph g{place})"
    return f"noise\nnetrun: error: the runtime crashed ({name}) while {phase} {where}\n"


@pytest.mark.parametrize(
    ("code", "stderr", "kind", "said"),
    [
        (2, "netrun: error: no such flag", InfrastructureError, "no such flag"),
        (1, "netrun: error: OSError: No space left", InfrastructureError, "No space left"),
        (3, "netrun: error: refused: x err 5000", ProductFailure, "another target"),
        (3, "noise err 14001\nnetrun: error: refused", InfrastructureError, "cDSP"),
        (4, "netrun: error: input file x.raw", ProductFailure, "x.raw"),
        (5, "netrun: error: the time limit", InfrastructureError, "took too long"),
        (6, "netrun: error: No module named x", InfrastructureError, "No module"),
        (7, "netrun: error: the graph did not run", ProductFailure, "did not run"),
        (7, "SSR detected\nnetrun: error: it did not run", InfrastructureError, "cDSP"),
        (127, "python3: command not found", InfrastructureError, "python3"),
        (139, crash("SIGSEGV", "loading the context"), ProductFailure, "SIGSEGV"),
        (134, crash("SIGABRT", "running the graph", " on the emulator"), ProductFailure, "SIGABRT"),
        (139, crash("SIGSEGV", "running the graph"), InfrastructureError, "SIGSEGV"),
        (137, crash("SIGKILL", "loading the context"), InfrastructureError, "out of memory"),
        (137, "", InfrastructureError, "it said nothing"),
        (128 + 99, "", InfrastructureError, "signal 99"),
    ],
)
def test_endings(code, stderr, kind, said):
    error = ended(code, stderr)
    assert type(error) is kind
    assert said in str(error)
    assert "rb3" in str(error)
    assert error.next_step


def test_a_good_ending_is_no_error():
    assert ended(0, "netrun: error: printed by someone else") is None
