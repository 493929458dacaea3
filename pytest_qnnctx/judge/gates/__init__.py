"""The gates that come with the package. Imported at pytest's start, so nothing heavy in here."""

from __future__ import annotations

from pytest_qnnctx.judge.gate import Gate
from pytest_qnnctx.judge.gates.binary_gates import MaxBinaryMb, MaxVtcmMb, SpillZero
from pytest_qnnctx.judge.gates.build_gates import EncodingsApplied, NoFp16, NpuOnly
from pytest_qnnctx.judge.gates.identity_gates import HtpArch, Runtime, Soc
from pytest_qnnctx.judge.gates.metric_gate import TaskMetric
from pytest_qnnctx.judge.gates.sanity_gate import OutputsSane
from pytest_qnnctx.judge.gates.time_gates import MaxLatencyMs, MaxLoadMs

#: In the order in which they are judged and shown: first what is true of the file, then of its
#: making, then of its run.
BUILT_IN: tuple[Gate, ...] = (
    HtpArch(),
    Soc(),
    Runtime(),
    NoFp16(),
    NpuOnly(),
    EncodingsApplied(),
    SpillZero(),
    MaxVtcmMb(),
    MaxBinaryMb(),
    MaxLoadMs(),
    MaxLatencyMs(),
    OutputsSane(),
    TaskMetric(),
)
