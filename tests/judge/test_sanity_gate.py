from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from pytest_qnnctx.binary.info import TensorInfo
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.gates.sanity_gate import OutputsSane
from pytest_qnnctx.judge.measurements import Need, Outputs
from pytest_qnnctx.judge.verdict import Outcome

GATE = OutputsSane()
STEP = 0.05


@pytest.fixture
def reference():
    """Logits of 20 samples, of both signs."""
    values = np.random.default_rng(1).normal(size=(20, 1, 16)).astype(np.float32)
    return [{"y": sample} for sample in values]


@pytest.fixture
def seen(good):
    """Measurements whose binary has outputs ``y`` and ``z`` with a known step."""

    def make(device, reference, step=STEP, **given):
        outputs = tuple(TensorInfo(n, "ufixed8", (1, 16), step, 0) for n in ("y", "z"))
        graph = replace(good.binary.graphs[0], outputs=outputs)
        binary = replace(good.binary, graphs=(graph,))
        kept = Outputs([0] * len(device), device, reference, **given)
        return replace(good, binary=binary, outputs=kept)

    return make


def judged(seen):
    verdict = GATE.judge({}, seen)
    json.dumps([verdict.measured, dict(verdict.details)], allow_nan=False)
    return verdict


def each(outputs, change):
    return [{name: change(array) for name, array in sample.items()} for sample in outputs]


def quantize(array, step=STEP):
    return (np.round(array / step) * step).astype(np.float32)


def test_no_arguments():
    assert GATE.needs({}) == {Need.OUTPUTS}
    with pytest.raises(UsageError):
        GATE.limits((1,), {})


def test_quantized_outputs_pass(seen, reference):
    verdict = judged(seen(each(reference, quantize), reference))
    assert verdict.outcome is Outcome.PASS
    assert verdict.measured == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("step", [STEP, None])
@pytest.mark.parametrize("factor", [1000, 3, 0.3, 0.001, 0, -1])
def test_a_wrong_scale_fails_though_the_cosine_is_1(factor, step, seen, reference):
    verdict = judged(seen(each(reference, lambda a: a * factor), reference, step))
    assert verdict.outcome is Outcome.FAIL
    assert "'y'" in verdict.evidence


@pytest.mark.parametrize("factor", [0.6, 1.9])
def test_a_scale_that_is_the_metrics_business(factor, seen, reference):
    device = each(reference, lambda a: a * factor)
    assert judged(seen(device, reference)).outcome is Outcome.PASS


def test_a_wrong_step_in_the_binary_does_not_excuse_its_own_values(seen, reference):
    """Output scale written 1000 times too large: the FP32 values are then all below one step."""
    device = each(reference, lambda a: quantize(a) * 1000)
    verdict = judged(seen(device, reference, STEP * 1000))
    assert verdict.outcome is Outcome.FAIL


def test_outputs_that_have_nothing_to_do_with_the_model_fail(seen, reference):
    noise = np.random.default_rng(2).normal(size=(20, 1, 16)).astype(np.float32)
    device = [{"y": sample} for sample in noise]
    assert judged(seen(device, reference)).outcome is Outcome.FAIL


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_names_output_and_sample(bad, seen, reference):
    device = each(reference, np.copy)
    device[7]["y"][0, 3] = bad
    for compared in (reference, None):
        verdict = judged(seen(device, compared))
        assert verdict.outcome is Outcome.FAIL
        assert "y (sample 7)" in verdict.evidence
        assert verdict.details["non_finite"] == {"y": [7]}


@pytest.mark.parametrize("step", [STEP, None])
def test_an_output_that_does_not_follow_its_input_fails(step, seen, reference):
    stale = each([reference[0]] * len(reference), np.copy)
    verdict = judged(seen(stale, reference, step))
    assert verdict.outcome is Outcome.FAIL
    assert "same for all inputs" in verdict.evidence


def test_stuck_beside_a_large_common_part(seen):
    """The scale alone looks right here."""
    reference = [{"y": np.array([100.0, 100.0 + 30 * i])} for i in range(2)]
    device = [{"y": np.array([100.0, 115.0])}] * 2
    verdict = judged(seen(device, reference))
    assert verdict.outcome is Outcome.FAIL
    assert "same for all inputs" in verdict.evidence


def test_a_constant_output_is_fine_where_the_reference_is_constant(seen):
    reference = [{"y": np.array([3.0, 1.0 + 0.001 * i])} for i in range(5)]
    device = [{"y": np.array([3.0, 1.0])}] * 5
    assert judged(seen(device, reference)).outcome is Outcome.PASS


def test_a_constant_reference_still_has_a_scale(seen):
    reference = [{"y": np.full(16, 3.0)}] * 4
    assert judged(seen([{"y": np.full(16, 3000.0)}] * 4, reference)).outcome is Outcome.FAIL


def test_one_sample_cannot_be_stuck(seen, reference):
    device = each(reference[:1], quantize)
    assert judged(seen(device, reference[:1])).outcome is Outcome.PASS


@pytest.mark.parametrize("step", [1 / 255, None])
def test_a_heat_map_of_empty_pictures_alone_shows_nothing(step, seen):
    rng = np.random.default_rng(3)
    reference = [{"y": rng.uniform(0, 0.0019, 64).astype(np.float32)} for _ in range(5)]
    device = each(reference, lambda a: quantize(a, 1 / 255))
    verdict = judged(seen(device, reference, step))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "quantization steps" in verdict.evidence
    scaled = each(reference, lambda a: a * 1000)
    assert judged(seen(scaled, reference, step)).outcome is Outcome.FAIL


@pytest.mark.parametrize("step", [1 / 255, None])
def test_a_dead_heat_map_is_stuck_where_a_picture_has_something(step, seen):
    reference = [{"y": np.full(64, 0.001)}, {"y": np.full(64, 0.9)}]
    verdict = judged(seen(each(reference, lambda a: a * 0), reference, step))
    assert verdict.outcome is Outcome.FAIL
    assert "same for all inputs" in verdict.evidence


def test_a_weak_peak_among_values_below_the_step(seen):
    step = 1 / 255
    reference = []
    for index in range(3):
        heat = np.full(6400, 0.0015, dtype=np.float32)
        heat[index] = 0.04
        reference.append({"y": heat})
    device = each(reference, lambda a: quantize(a, step))
    verdict = judged(seen(device, reference, step))
    assert verdict.outcome is Outcome.PASS
    assert verdict.measured == pytest.approx(1.0, abs=0.1)


def test_an_all_zero_reference_has_no_scale(seen):
    reference = [{"y": np.zeros(16)}] * 3
    device = [{"y": np.full(16, STEP)}] * 3
    verdict = judged(seen(device, reference))
    assert (verdict.outcome, verdict.measured) == (Outcome.PASS, "finite")
    assert "all zero" in verdict.evidence


def test_one_wrong_label_is_no_fault_of_scale(seen):
    for truth, guess in [([9.0], [1.0]), ([3.0, 5.0], [3.0, 3.0]), ([1.0, 900.0], [1.0, 2.0])]:
        reference = [{"y": np.array([label])} for label in truth]
        device = [{"y": np.array([label])} for label in guess]
        assert judged(seen(device, reference, None)).outcome is Outcome.PASS


def test_labels_that_are_all_one_are_stuck(seen):
    reference = [{"y": np.array([float(label)])} for label in range(8)]
    device = [{"y": np.array([3.0])}] * 8
    assert judged(seen(device, reference, None)).outcome is Outcome.FAIL


def test_scaled_whole_numbers_fail(seen):
    reference = [{"y": np.arange(16.0)}, {"y": np.arange(16.0)[::-1]}]
    device = each(reference, lambda a: a * 1000)
    assert judged(seen(device, reference, None)).outcome is Outcome.FAIL


def test_every_output_is_judged(seen, reference):
    two = [{"y": s["y"], "z": s["y"] * 2} for s in reference]
    device = [{"y": s["y"], "z": s["y"] * 2000} for s in reference]
    verdict = judged(seen(device, two))
    assert verdict.outcome is Outcome.FAIL
    assert "'z'" in verdict.evidence
    assert "'y'" not in verdict.evidence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: {"other": s["y"]}, "'y' is missing"),
        (lambda s: {"y": s["y"], "more": s["y"]}, "'more' is not"),
        (lambda s: {"y": s["y"].reshape(16)}, "shape [16], FP32: [1, 16]"),
        (lambda s: {"y": s["y"][:, :8]}, "shape [1, 8]"),
    ],
)
def test_another_form_fails(change, said, seen, reference):
    verdict = judged(seen([change(s) for s in reference], reference))
    assert verdict.outcome is Outcome.FAIL
    assert said in verdict.evidence


def test_another_number_of_samples_fails(seen, reference):
    assert judged(seen(reference[:5], reference)).outcome is Outcome.FAIL


def test_without_a_reference_the_evidence_says_what_was_not_judged(seen, reference):
    verdict = judged(seen(reference, None, reference_missing="it has a custom op"))
    assert verdict.outcome is Outcome.PASS
    assert "scale not judged" in verdict.evidence
    assert "it has a custom op" in verdict.evidence


def test_nan_of_the_reference_is_no_evidence(seen, reference):
    broken = each(reference, np.copy)
    broken[3]["y"][0, 0] = math.nan
    verdict = judged(seen(reference, broken))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "y (sample 3)" in verdict.evidence


def test_infinity_of_the_reference_is_left_out(seen, reference):
    masked = each(reference, np.copy)
    for sample in masked:
        sample["y"][0, 0] = -math.inf
    assert judged(seen(reference, masked)).outcome is Outcome.PASS


def test_an_empty_output_has_no_scale(seen):
    nothing = [{"y": np.zeros((0, 4))}] * 2
    verdict = judged(seen(nothing, nothing))
    assert verdict.outcome is Outcome.PASS
    assert "no values" in verdict.evidence


@pytest.mark.parametrize("device", [[], [{}]])
def test_nothing_came_out(device, seen):
    assert judged(seen(device, None)).outcome is Outcome.INCONCLUSIVE


def test_not_run(good, unbuilt):
    why = replace(good, missing={Need.OUTPUTS: "the runtime refused it"})
    assert "the runtime refused it" in GATE.judge({}, why).evidence
    for measurements in (good, why, unbuilt()):
        assert GATE.judge({}, measurements).outcome is Outcome.INCONCLUSIVE


def test_the_emulator_is_labelled(seen, reference):
    assert judged(replace(seen(reference, reference), emulated=True)).emulated
