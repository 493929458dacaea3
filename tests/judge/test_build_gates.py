from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_qnnctx.binary.info import TensorInfo
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.gates.build_gates import EncodingsApplied, NoFp16, NpuOnly
from pytest_qnnctx.judge.verdict import Outcome
from pytest_qnnctx.model import EncodingsUse

GATES = [NoFp16(), NpuOnly(), EncodingsApplied()]
EACH = pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)


def made(seen, **changes):
    provenance = replace(seen.artifact.provenance, **changes)
    return replace(seen, artifact=replace(seen.artifact, provenance=provenance))


@EACH
def test_a_good_build_passes(gate, good):
    verdict = gate.judge({}, good)
    assert verdict.outcome is Outcome.PASS
    assert verdict.measured is not None


@EACH
def test_no_arguments(gate):
    with pytest.raises(UsageError):
        gate.limits((True,), {})


@EACH
def test_unknown_is_not_none(gate, good):
    seen = made(good, float_ops=None, host_ops=None, encodings=None)
    verdict = gate.judge({}, seen)
    assert (verdict.outcome, verdict.measured) == (Outcome.INCONCLUSIVE, None)


@EACH
def test_a_binary_without_provenance(gate, good):
    seen = replace(good, artifact=replace(good.artifact, provenance=None))
    verdict = gate.judge({}, seen)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "provenance" in verdict.evidence


@EACH
def test_a_build_that_failed_for_another_reason(gate, unbuilt):
    verdict = gate.judge({}, unbuilt(("dynamic_input", "x")))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.evidence == "no usable binary was built"


@EACH
def test_nothing_was_built(gate, good):
    assert gate.judge({}, replace(good, artifact=None)).outcome is Outcome.INCONCLUSIVE


def test_float_ops_are_named(good):
    names = ("conv1", "conv2", "conv3", "conv4", "conv5")
    verdict = NoFp16().judge({}, made(good, float_ops=names))
    assert (verdict.outcome, verdict.measured, verdict.limit) == (Outcome.FAIL, 5, 0)
    assert verdict.evidence == "5 float ops: conv1, conv2, conv3 and 2 more"
    assert verdict.details["float_ops"] == list(names)


def test_float_ops_of_a_refused_build_are_named_once(unbuilt):
    seen = unbuilt(("float_op", "conv1 (Conv)"), ("float_op", "conv1 (Conv)"), ("other", "x"))
    verdict = NoFp16().judge({}, seen)
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, 1)
    assert "1 float op: conv1 (Conv)" in verdict.evidence


def test_unsupported_ops_are_not_called_float(unbuilt):
    verdict = NoFp16().judge({}, unbuilt(("unsupported_op", "pool (MaxPool)")))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "float" not in verdict.evidence


def test_float_input_is_told_apart_from_a_float_op(good, graph):
    inputs = (TensorInfo("image", "float32", (1, 8)),)
    seen = replace(good, binary=replace(good.binary, graphs=(replace(graph, inputs=inputs),)))
    verdict = NoFp16().judge({}, seen)
    assert verdict.outcome is Outcome.PASS
    assert "image float32" in verdict.evidence


def test_host_ops_are_named(good):
    verdict = NpuOnly().judge({}, made(good, host_ops=("nms",)))
    assert (verdict.outcome, verdict.measured) == (Outcome.FAIL, 1)
    assert verdict.evidence == "1 op off the NPU: nms"


@pytest.mark.parametrize("kind", ["unsupported_op", "float_op"])
def test_what_the_npu_refuses_is_not_on_the_npu(kind, unbuilt):
    verdict = NpuOnly().judge({}, unbuilt((kind, "pool (MaxPool)")))
    assert verdict.outcome is Outcome.FAIL
    assert "pool (MaxPool)" in verdict.evidence


@pytest.mark.parametrize(
    ("use", "outcome", "said"),
    [
        (EncodingsUse("1.0.0", 3, 3), Outcome.PASS, "3 of 3"),
        (EncodingsUse("1.0.0", 3, 1, unseen=("a", "b")), Outcome.PASS, "2 fused away: a, b"),
        (EncodingsUse("1.0.0", 3, 3, derived=("bias",)), Outcome.PASS, "3 of 3"),
        (EncodingsUse("1.0.0", 0, 0), Outcome.FAIL, "no entry"),
        (EncodingsUse("1.0.0", 2, 0, unseen=("a", "b")), Outcome.INCONCLUSIVE, "none of 2"),
        (EncodingsUse("1.0.0", 3, 2), Outcome.INCONCLUSIVE, "1 of 3"),
        (EncodingsUse("1.0.0", 3, 4), Outcome.INCONCLUSIVE, "1 of 3"),
        (EncodingsUse("1.0.0", 3, 2, differing=("w: scale",)), Outcome.FAIL, "w: scale"),
        (EncodingsUse("1.0.0", 3, 3, uncovered=("act7",)), Outcome.FAIL, "act7"),
    ],
)
def test_encodings(use, outcome, said, good):
    verdict = EncodingsApplied().judge({}, made(good, encodings=use))
    assert verdict.outcome is outcome
    assert said in verdict.evidence
    assert (verdict.measured, verdict.limit) == (use.applied, use.total)


def test_encodings_that_match_no_tensor_are_named(unbuilt):
    seen = unbuilt(("encoding_unmatched", "gone"), ("tensor_uncovered", "act7"), ("other", "x"))
    verdict = EncodingsApplied().judge({}, seen)
    assert verdict.outcome is Outcome.FAIL
    assert "gone" in verdict.evidence
    assert verdict.details["tensor_uncovered"] == ["act7"]
    assert "x" not in verdict.details


def test_a_model_without_encodings_gets_a_hint(good):
    assert "encodings=" in EncodingsApplied().judge({}, made(good, encodings=None)).evidence
