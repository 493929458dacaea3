"""The gates that come with the package, as a list that costs pytest's start next to nothing.

Each entry has what a marker's line needs; its rule is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from pytest_qnnctx.judge.gate import Gate
    from pytest_qnnctx.judge.measurements import Measurements, Need
    from pytest_qnnctx.judge.verdict import Verdict


class Rule(Protocol):
    """What decides: a class of the modules in this package."""

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """See :meth:`Gate.limits`."""
        ...

    def needs(self, limits: Mapping[str, Any]) -> frozenset[Need]:
        """See :meth:`Gate.needs`."""
        ...

    def judge(self, limits: Mapping[str, Any], measurements: Measurements) -> Verdict:
        """See :meth:`Gate.judge`."""
        ...


class ListedGate:
    """A Gate by its description; ``rule`` names its module here and its class."""

    def __init__(self, rule: str, signature: str, help: str, *, always: bool = False) -> None:
        self.name = signature.partition("(")[0]
        self.signature = signature
        self.help = help
        self.always = always
        self._rule_name = rule

    @cached_property
    def rule(self) -> Rule:
        """The rule, imported on first use."""
        module, _, name = self._rule_name.partition(":")
        return cast(Rule, getattr(import_module(f"{__name__}.{module}"), name)())

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """See :meth:`Gate.limits`."""
        return self.rule.limits(args, kwargs)

    def needs(self, limits: Mapping[str, Any]) -> frozenset[Need]:
        """See :meth:`Gate.needs`."""
        return self.rule.needs(limits)

    def judge(self, limits: Mapping[str, Any], measurements: Measurements) -> Verdict:
        """See :meth:`Gate.judge`."""
        return self.rule.judge(limits, measurements)


#: In the order in which they are judged and shown: first what is true of the file, then of its
#: making, then of its run.
BUILT_IN: tuple[Gate, ...] = (
    ListedGate(
        "identity_gates:HtpArch",
        "htp_arch",
        "the binary is for the HTP architecture of the target and of the board",
        always=True,
    ),
    ListedGate(
        "identity_gates:Soc",
        "soc",
        "the binary is for the SoC of the target and of the board",
        always=True,
    ),
    ListedGate(
        "identity_gates:Runtime",
        "runtime",
        "the board's QNN runtime is not older than the binary's QNN",
        always=True,
    ),
    ListedGate(
        "options_gate:OptionsApplied",
        "options_applied",
        "the binary has the options that the compiler was given: none was ignored",
        always=True,
    ),
    ListedGate(
        "build_gates:NoFp16",
        "no_fp16",
        "no op of the compiled graph computes in floating point",
    ),
    ListedGate(
        "build_gates:NpuOnly",
        "npu_only",
        "every op of the model runs on the NPU, none on the CPU",
    ),
    ListedGate(
        "build_gates:EncodingsApplied",
        "encodings_applied",
        "the compiled graph has the scales, offsets and widths of the encodings file",
    ),
    ListedGate(
        "binary_gates:SpillZero",
        "spill_zero",
        "no graph spills to DDR within the VTCM that the part really has",
    ),
    ListedGate(
        "binary_gates:MaxVtcmMb",
        "max_vtcm_mb(mb)",
        "the binary was compiled for at most this much VTCM, in MiB (1024 * 1024 bytes)",
    ),
    ListedGate(
        "binary_gates:MaxBinaryMb",
        "max_binary_mb(mb)",
        "the context binary is at most this large, in MiB (1024 * 1024 bytes)",
    ),
    ListedGate(
        "time_gates:MaxLoadMs",
        "max_load_ms(ms)",
        "median time to load the context in a fresh process, in ms (sign test, 11 to 31 loads)",
    ),
    ListedGate(
        "time_gates:MaxLatencyMs",
        "max_latency_ms(ms, percentile=50)",
        "a percentile (default: the median) of the time of one inference, in ms",
    ),
    ListedGate(
        "sanity_gate:OutputsSane",
        "outputs_sane",
        "outputs are finite, not stuck, and of the FP32 model's form and scale",
        always=True,
    ),
    ListedGate(
        "metric_gate:TaskMetric",
        "task_metric(metric, *, min=None, max=None, max_drop=None, per_class_max_drop=None)",
        "the task's own metric, absolute and against the FP32 model on the same inputs",
    ),
)
