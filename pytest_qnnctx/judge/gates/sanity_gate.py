"""The gate that asks whether outputs are outputs of this model at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.judge.gates.answer import Answer, listed, not_taken, on_emulator, plural
from pytest_qnnctx.judge.gates.arguments import nothing
from pytest_qnnctx.judge.measurements import Measurements, Need, Outputs
from pytest_qnnctx.judge.verdict import Verdict

Limits = Mapping[str, Any]


class OutputsSane:
    """Outputs are finite, follow their inputs, and have the FP32 model's names, shapes and scale.

    It judges no accuracy. Without a reference only finiteness is judged, and the evidence says so.
    """

    name = "outputs_sane"
    signature = "outputs_sane"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """Outputs; the conductor leaves the gate out of a test that gives no data."""
        return frozenset({Need.OUTPUTS})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """NaN first, then form, then each output's values against the reference."""
        answer = Answer(self.name, "finite, scale 0.5 to 2", "", on_emulator(measurements))
        outputs = measurements.outputs
        if outputs is None:
            return answer.unknown(not_taken(measurements, Need.OUTPUTS, "outputs"))
        count = len(outputs.device)
        if count == 0 or not all(outputs.device):
            return answer.unknown("no outputs came out")
        if count != len(outputs.targets):
            return answer.unknown(f"{count} outputs for {len(outputs.targets)} targets")
        from pytest_qnnctx.judge.fidelity import non_finite

        if bad := non_finite(outputs.device):
            first = [f"{name} (sample {samples[0]})" for name, samples in bad.items()]
            evidence = f"NaN or infinity in {listed(first)}"
            return answer.fails("NaN or infinity", evidence, non_finite=bad)
        if outputs.reference is None and outputs.reference_failed:
            return answer.unknown(f"nothing to compare with: {outputs.reference_failed}")
        if outputs.reference is None:
            why = outputs.reference_missing or "not taken"
            evidence = f"{plural(count, 'sample')} finite; scale not judged, no reference: {why}"
            return answer.passes("finite", evidence)
        # Infinity may be meant there, as a mask that no quantized output can show; NaN never is.
        if bad := non_finite(outputs.reference, infinity_too=False):
            first = [f"{name} (sample {samples[0]})" for name, samples in bad.items()]
            return answer.unknown(f"the FP32 reference itself has NaN in {listed(first)}")
        return _against_reference(answer, outputs, measurements.binary)


def _against_reference(answer: Answer, outputs: Outputs, binary: BinaryInfo | None) -> Verdict:
    from pytest_qnnctx.judge.fidelity import WITHIN_STEPS, compare, form_problems

    reference = outputs.reference or ()
    if wrong := form_problems(outputs.device, reference):
        return answer.fails("other form", listed(wrong), problems=wrong)
    steps = _steps(binary)
    found = [
        compare(
            name,
            [sample[name] for sample in outputs.device],
            [sample[name] for sample in reference],
            steps.get(name),
        )
        for name in reference[0]
    ]
    scales = {output.name: output.scale for output in found if output.scale is not None}
    skipped = {output.name: output.skipped for output in found if output.skipped}
    details = {"scale": scales, "scale_not_judged": skipped}
    worst = max(scales.values(), key=_distance, default=None)
    problems = [f"output '{o.name}' {problem}" for o in found for problem in o.problems]
    if problems:
        measured = worst if worst is not None else "not sane"
        return answer.fails(measured, listed(problems), problems=problems, **details)
    samples = plural(len(outputs.device), "sample")
    if worst is None and all(reason == WITHIN_STEPS for reason in skipped.values()):
        # Either the data excites nothing, or the binary's own steps are what is wrong.
        why = f"nothing to judge: all {WITHIN_STEPS}; give data that excites the outputs"
        return answer.unknown(why, None, **details)
    if worst is None:
        why = listed(dict.fromkeys(skipped.values()), 1)
        return answer.passes("finite", f"{samples} finite; scale not judged: {why}", **details)
    evidence = f"{samples} finite, scale {worst:.3g} of FP32"
    if skipped:
        evidence += f"; not judged for {listed(skipped)}"
    return answer.passes(worst, evidence, **details)


def _distance(scale: float) -> float:
    """How far a scale is from 1, as a ratio; a scale of zero or below is the farthest."""
    return abs(math.log(scale)) if scale > 0 else math.inf


def _steps(binary: BinaryInfo | None) -> dict[str, float]:
    """The quantization step of each output, where the binary says it."""
    graphs = binary.graphs if binary is not None else ()
    return {
        tensor.name: abs(tensor.scale)
        for graph in graphs
        for tensor in graph.outputs
        if tensor.scale is not None and math.isfinite(tensor.scale) and tensor.scale != 0
    }
