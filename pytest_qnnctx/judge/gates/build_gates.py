"""Gates on how the binary was made: float ops, ops off the NPU, and the encodings' fate.

The toolchain's findings decide where the build failed, the binary's provenance where it did not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.judge.gates.answer import Answer, listed, not_taken, plural, subjects
from pytest_qnnctx.judge.gates.arguments import nothing
from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.verdict import Verdict
from pytest_qnnctx.model import EncodingsUse, Provenance

Limits = Mapping[str, Any]

_NO_PROVENANCE = "the binary has no provenance; build it here, or pin it with its provenance"


class NoFp16:
    """No op of the graph computes in floating point."""

    name = "no_fp16"
    signature = "no_fp16"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The artefact with its provenance, and the binary's inputs and outputs."""
        return frozenset({Need.ARTIFACT, Need.BINARY})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """A refused build fails by the nodes that its findings name."""
        answer = Answer(self.name, 0, "ops")
        error = measurements.build_error
        if floats := subjects(error, ("float_op",)):
            evidence = f"the compiler refuses {plural(len(floats), 'float op')}: {listed(floats)}"
            return answer.fails(len(floats), evidence, float_ops=floats)
        provenance = _provenance(measurements)
        if isinstance(provenance, str):
            return answer.unknown(provenance)
        ops = provenance.float_ops
        if ops is None:
            tool = provenance.toolchain.get("name", "the toolchain")
            return answer.unknown(f"{tool} could not tell which ops compute in floating point")
        boundary = _float_io(measurements.binary)
        if ops:
            evidence = f"{plural(len(ops), 'float op')}: {listed(ops)}"
            return answer.fails(len(ops), evidence, float_ops=ops, float_io=boundary)
        evidence = "no op computes in floating point"
        if boundary:
            evidence += f"; float graph I/O is converted at the edge: {listed(boundary)}"
        return answer.passes(0, evidence, float_io=boundary)


class NpuOnly:
    """Every op runs on the NPU; none was left to the CPU."""

    name = "npu_only"
    signature = "npu_only"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The artefact with its provenance."""
        return frozenset({Need.ARTIFACT})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """An op that the NPU refuses could only run elsewhere, so such a build fails."""
        answer = Answer(self.name, 0, "ops")
        if refused := subjects(measurements.build_error, ("unsupported_op", "float_op")):
            evidence = f"the NPU refuses {plural(len(refused), 'op')}: {listed(refused)}"
            return answer.fails(len(refused), evidence, host_ops=refused)
        provenance = _provenance(measurements)
        if isinstance(provenance, str):
            return answer.unknown(provenance)
        ops = provenance.host_ops
        if ops is None:
            tool = provenance.toolchain.get("name", "the toolchain")
            return answer.unknown(f"{tool} could not tell which ops run off the NPU")
        if ops:
            evidence = f"{plural(len(ops), 'op')} off the NPU: {listed(ops)}"
            return answer.fails(len(ops), evidence, host_ops=ops)
        return answer.passes(0, "every op runs on the NPU")


class EncodingsApplied:
    """The encodings file's entries are those of the compiled graph.

    A tensor that the compiler fused away can neither confirm nor contradict its entry. Such
    entries are counted in the evidence and listed in the details, and do not fail the gate, as
    long as at least one entry was found again and none differs.
    """

    name = "encodings_applied"
    signature = "encodings_applied"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The artefact with its provenance."""
        return frozenset({Need.ARTIFACT})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """A build that the encodings check refused fails by the names that it found."""
        answer = Answer(self.name, None, "encodings")
        error = measurements.build_error
        if error is not None:
            kinds = sorted({finding.kind for finding in error.findings})
            wrong = [k for k in kinds if k.startswith("encoding") or k == "tensor_uncovered"]
            if names := subjects(error, wrong):
                evidence = f"{plural(len(names), 'tensor')} that do not fit: {listed(names)}"
                return answer.fails(None, evidence, **{k: subjects(error, [k]) for k in wrong})
        provenance = _provenance(measurements)
        if isinstance(provenance, str):
            return answer.unknown(provenance)
        use = provenance.encodings
        if use is None:
            return answer.unknown(
                "nothing to compare with: no encodings=FILE, and no Q/DQ pairs in the model"
            )
        return _judge_use(Answer(self.name, use.total, "encodings"), use)


def _judge_use(answer: Answer, use: EncodingsUse) -> Verdict:
    details = {
        "version": use.version,
        "unseen": use.unseen,
        "differing": use.differing,
        "uncovered": use.uncovered,
        "inherited": use.inherited,
        "derived": use.derived,
    }
    if use.differing:
        evidence = f"{len(use.differing)} of {use.total} differ: {listed(use.differing)}"
        return answer.fails(use.applied, evidence, **details)
    if use.uncovered:
        evidence = f"{plural(len(use.uncovered), 'tensor')} without: {listed(use.uncovered)}"
        return answer.fails(use.applied, evidence, **details)
    if use.total <= 0:
        return answer.fails(use.applied, "the encodings file has no entry", **details)
    lost = use.total - use.applied - len(use.unseen)
    if lost != 0:
        evidence = f"{abs(lost)} of {use.total} entries are not accounted for"
        return answer.unknown(evidence, use.applied, **details)
    if use.applied <= 0:
        evidence = f"none of {use.total} entries was found again in the compiled graph"
        return answer.unknown(evidence, use.applied, **details)
    evidence = f"{use.applied} of {use.total} found again unchanged"
    if use.unseen:
        evidence += f"; {len(use.unseen)} fused away: {listed(use.unseen, 2)}"
    return answer.passes(use.applied, evidence, **details)


def _provenance(measurements: Measurements) -> Provenance | str:
    """The provenance, or the sentence that says why there is none."""
    artifact = measurements.artifact
    if measurements.build_error is not None or artifact is None:
        return not_taken(measurements, Need.ARTIFACT, "binary")
    return artifact.provenance if artifact.provenance is not None else _NO_PROVENANCE


def _float_io(binary: BinaryInfo | None) -> list[str]:
    """The graphs' float inputs and outputs; these are converted at the edge and are no ops."""
    if binary is None:
        return []
    return [
        f"{tensor.name} {tensor.dtype}"
        for graph in binary.graphs
        for tensor in (*graph.inputs, *graph.outputs)
        if tensor.dtype in ("float16", "float32", "float64")
    ]
