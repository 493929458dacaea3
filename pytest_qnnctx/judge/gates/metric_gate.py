"""The gate on the task's own metric."""

from __future__ import annotations

import math
import traceback
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import QnnctxError, UsageError
from pytest_qnnctx.judge.blame import blame
from pytest_qnnctx.judge.gates.answer import (
    Answer,
    first_line,
    listed,
    not_taken,
    on_emulator,
    plural,
)
from pytest_qnnctx.judge.gates.arguments import bound, number
from pytest_qnnctx.judge.measurements import Measurements, Need, Outputs
from pytest_qnnctx.judge.metric import Metric, Score
from pytest_qnnctx.judge.metrics import as_metric, as_score, sorted_items
from pytest_qnnctx.judge.verdict import Verdict

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array

Limits = Mapping[str, Any]

_LIMITS = ("min", "max", "max_drop", "per_class_max_drop")
#: Relative rounding of a float32 score must not decide: 0.97 - 0.96 is a drop of 0.01.
_ROUNDING = 1e-7


class TaskMetric:
    """A metric's score is within absolute limits and close enough to the FP32 model's.

    ``max_drop`` is the FP32 score less the device's (the other way round for a metric whose
    ``larger_is_better`` is False), ``per_class_max_drop`` the same for the worst class. NaN fails.
    """

    name = "task_metric"
    signature = "task_metric(metric, *, min=None, max=None, max_drop=None, per_class_max_drop=None)"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """``metric`` (a name or a callable) and at least one finite limit; drops from 0 up."""

        def form(
            metric: Any,
            *,
            min: float | None = None,
            max: float | None = None,
            max_drop: float | None = None,
            per_class_max_drop: float | None = None,
        ) -> None: ...

        given = bound(self.signature, form, args, kwargs)
        metric = given["metric"]
        if isinstance(metric, str):
            if not metric:
                raise UsageError("the metric's name is empty")
        else:
            as_metric(metric)
        for name in _LIMITS:
            if given[name] is not None:
                least = 0 if name.endswith("drop") else None
                given[name] = number(self.signature, name, given[name], least=least)
        if all(given[name] is None for name in _LIMITS):
            raise UsageError(
                "a metric without a limit accepts everything",
                next_step=f"give at least one of {', '.join(_LIMITS)}",
            )
        if given["min"] is not None and given["max"] is not None and given["min"] > given["max"]:
            raise UsageError(f"min={given['min']} lies above max={given['max']}")
        return given

    def needs(self, limits: Limits) -> frozenset[Need]:
        """Outputs."""
        return frozenset({Need.OUTPUTS})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """Score the outputs, then compare."""
        named = limits["metric"]
        label = named if isinstance(named, str) else as_metric(named).name
        unit = "" if isinstance(named, str) else str(getattr(named, "unit", ""))
        answer = Answer(
            f"{self.name}({label})", _limit_shown(limits), unit, on_emulator(measurements)
        )
        if measurements.outputs is None:
            return answer.unknown(not_taken(measurements, Need.OUTPUTS, "outputs"))
        if isinstance(named, str):
            return answer.unknown(f"metric '{named}' was not looked up among the registered ones")
        outputs = measurements.outputs
        count = len(outputs.device)
        if count == 0 or count != len(outputs.targets):
            return answer.unknown(f"{count} outputs for {len(outputs.targets)} targets")
        return _Judging(answer, as_metric(named), limits, outputs).verdict()


@dataclass
class _Judging:
    """One use of the marker on one set of outputs."""

    answer: Answer
    metric: Metric
    limits: Limits
    outputs: Outputs

    def verdict(self) -> Verdict:
        device = _score(self.metric, self.outputs.device, self.outputs.targets)
        nan = self._non_finite()
        details: dict[str, Any] = {name: self.limits[name] for name in _LIMITS}
        if nan:
            details["non_finite_outputs"] = nan
        if isinstance(device, str):
            return self.answer.unknown(device, **details)
        details |= {"score": device.value, "count": device.count}
        if device.per_class:
            details["per_class"] = device.per_class
        if device.count <= 0:
            return self.answer.unknown(f"the metric scored {device.count} samples", **details)
        reference = self._reference()
        if isinstance(reference, Score):
            details["reference_score"] = reference.value
        if not math.isfinite(device.value):
            evidence = f"the score is {device.value} over {plural(device.count, 'sample')}"
            return self._failing([evidence], nan, device, reference, details)
        problems = self._absolute(device.value)
        doubts: list[str] = []
        compared = self._compared(device, reference, problems, doubts, details)
        if problems:
            return self._failing(problems, nan, device, reference, details)
        evidence = f"{device.value:.4g} over {plural(device.count, 'sample')}{compared}"
        if nan:
            evidence += f"; {_nan_shown(nan)}"
        if doubts:
            return self.answer.unknown("; ".join(doubts), device.value, **details)
        return self.answer.passes(device.value, evidence, **details)

    def _absolute(self, value: float) -> list[str]:
        low, high = self.limits["min"], self.limits["max"]
        problems = []
        if low is not None and low - value > _slack(low, value):
            problems.append(f"{value:.4g} is below min {low:g}")
        if high is not None and value - high > _slack(high, value):
            problems.append(f"{value:.4g} is above max {high:g}")
        return problems

    def _compared(
        self,
        device: Score,
        reference: Score | str,
        problems: list[str],
        doubts: list[str],
        details: dict[str, Any],
    ) -> str:
        """Judge the drops; returns what a passing verdict says of them."""
        most, most_class = self.limits["max_drop"], self.limits["per_class_max_drop"]
        if isinstance(reference, str) or not math.isfinite(reference.value):
            if most is not None or most_class is not None:
                no = reference if isinstance(reference, str) else f"its score is {reference.value}"
                doubts.append(f"no drop without the FP32 reference: {no}")
            return ""
        drop = self._drop(reference.value, device.value)
        details["drop"] = drop
        if most is not None and drop - most > _slack(reference.value, device.value):
            problems.append(f"drop {drop:.4g} from FP32 {reference.value:.4g} is above {most:g}")
        worst = ""
        if most_class is not None:
            worst = self._compare_classes(device, reference, problems, doubts, details)
        return f" (FP32 {reference.value:.4g}, drop {drop:.4g}{worst})"

    def _compare_classes(
        self,
        device: Score,
        reference: Score,
        problems: list[str],
        doubts: list[str],
        details: dict[str, Any],
    ) -> str:
        most = self.limits["per_class_max_drop"]
        if not reference.per_class:
            doubts.append(f"metric '{self.metric.name}' gives no score per class")
            return ""
        details["reference_per_class"] = reference.per_class
        ordered = sorted_items(reference.per_class)
        if unknown := [c for c, score in ordered if not math.isfinite(score)]:
            doubts.append(f"FP32 has no finite score of class {listed(map(str, unknown))}")
        drops: dict[Hashable, float] = {}
        lost = []
        for label, score in ordered:
            if label in unknown:
                continue
            here = device.per_class.get(label)
            if here is None or not math.isfinite(here):
                lost.append(label)
            else:
                drops[label] = self._drop(score, here)
        details["class_drops"] = drops
        if lost:
            details["lost_classes"] = lost
            problems.append(f"the device has no score of class {listed(map(str, lost))}")
        if not drops:
            return ""
        worst = max(drops, key=lambda label: drops[label])
        details["worst_class"] = worst
        pair = (reference.per_class[worst], device.per_class[worst])
        if drops[worst] - most > _slack(*pair):
            problems.append(
                f"class {worst} drops {drops[worst]:.4g} from FP32 {pair[0]:.4g}, above {most:g}"
            )
        return f", worst class {worst}: {drops[worst]:.4g}"

    def _failing(
        self,
        problems: list[str],
        nan: Mapping[str, list[int]],
        device: Score,
        reference: Score | str,
        details: dict[str, Any],
    ) -> Verdict:
        """A fail, with what is known of where the score was lost."""
        sentences = list(problems)
        if nan:
            sentences.append(_nan_shown(nan))
        details["problems"] = problems
        known = reference.value if isinstance(reference, Score) else None
        quantized = self._quantized()
        if isinstance(quantized, str):
            details["quantized_missing"] = quantized
        else:
            details["quantized_score"] = quantized.value
            found = blame(
                known, quantized.value, device.value, larger_is_better=self._larger_is_better
            )
            if found is not None:
                details |= {"losses": found.losses, "lost_in": found.worst}
                sentences.append(found.sentence)
        return self.answer.fails(device.value, "; ".join(sentences), **details)

    def _reference(self) -> Score | str:
        """The FP32 model's score, or why there is none."""
        reference = self.outputs.reference
        if reference is None:
            return first_line(self.outputs.reference_missing or "not taken")
        return self._other(reference)

    def _quantized(self) -> Score | str:
        """The score of the quantized model on the CPU, or why there is none."""
        quantized = self.outputs.quantized
        if quantized is None:
            return first_line(self.outputs.quantized_missing or "not taken")
        return self._other(quantized)

    def _other(self, outputs: Sequence[Mapping[str, Array]]) -> Score | str:
        if len(outputs) != len(self.outputs.targets):
            return f"{len(outputs)} outputs for {len(self.outputs.targets)} targets"
        return _score(self.metric, outputs, self.outputs.targets)

    def _non_finite(self) -> dict[str, list[int]]:
        from pytest_qnnctx.judge.fidelity import non_finite

        return non_finite(self.outputs.device)

    @property
    def _larger_is_better(self) -> bool:
        return bool(getattr(self.metric, "larger_is_better", True))

    def _drop(self, reference: float, device: float) -> float:
        return reference - device if self._larger_is_better else device - reference


def _score(
    metric: Metric, outputs: Sequence[Mapping[str, Array]], targets: Sequence[Any]
) -> Score | str:
    """The metric's score, or a sentence that says what its code raised and where.

    The metric works on copies: what it does to its arguments must not reach another gate.
    """
    copies = [{name: array.copy() for name, array in sample.items()} for sample in outputs]
    try:
        score = as_score(metric(copies, deepcopy(list(targets))), len(copies), metric.name)
        classes = {label: float(value) for label, value in score.per_class.items()}
        return Score(float(score.value), int(score.count), classes)
    except QnnctxError as error:
        return error.what
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        what = f"{type(error).__name__}: {first_line(error)}"
        return f"metric '{metric.name}' raised {what} ({where})"


def _nan_shown(nan: Mapping[str, list[int]]) -> str:
    return f"NaN or infinity in {listed(f'{n} (sample {s[0]})' for n, s in nan.items())}"


def _slack(*scores: float) -> float:
    return _ROUNDING * max(abs(score) for score in scores)


def _limit_shown(limits: Limits) -> str:
    """The limits that were given, by name: a bare number would not tell min from max."""
    given = {name: limits[name] for name in _LIMITS if limits[name] is not None}
    return ", ".join(f"{name} {value:g}" for name, value in given.items())
