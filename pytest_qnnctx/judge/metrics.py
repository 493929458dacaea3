"""Task metrics that come with the package, and how a plain function becomes one."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.metric import Metric, Score

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array

#: What a user may give as a metric: outputs (one ``{name: array}`` a sample) and targets in,
#: a number or a Score out.
MetricFunction = Callable[[list[Mapping[str, "Array"]], list[Any]], Any]


class TopK:
    """The share of samples whose target is among the ``k`` best scores, also per target class.

    One output holds the scores of one sample; every dimension but one must be 1, as in ``(C,)``,
    ``(1, C)`` or ``(1, C, 1, 1)``. ``output`` names it where the model has several. A target is
    the label's number, or a one-hot vector of C.

    Ties count against the sample: a target is right only if fewer than ``k`` other scores are as
    large as its own. So a constant output scores 0, not the share of class 0. A NaN among the
    scores makes the whole score NaN.
    """

    def __init__(self, k: int, output: str | None = None) -> None:
        self.k = k
        self.output = output
        self.name = f"top{k}" if output is None else f"top{k}:{output}"
        self.unit = "share"

    def __call__(self, outputs: Sequence[Mapping[str, Array]], targets: Sequence[Any]) -> Score:
        """Score. Raises UsageError where outputs or targets do not have the form above."""
        import numpy as np

        if not outputs or len(outputs) != len(targets):
            raise UsageError(f"{self.name}: {len(outputs)} outputs for {len(targets)} targets")
        hits: dict[Hashable, list[float]] = {}
        for index, (output, target) in enumerate(zip(outputs, targets, strict=True)):
            scores = self._scores(output)
            label = self._label(target, len(scores), index)
            if np.isnan(scores).any():
                hit = math.nan
            else:
                others = int(np.count_nonzero(scores >= scores[label])) - 1
                hit = float(others < self.k)
            hits.setdefault(label, []).append(hit)
        per_class = {label: sum(found) / len(found) for label, found in sorted_items(hits)}
        every = [hit for found in hits.values() for hit in found]
        return Score(sum(every) / len(every), len(every), per_class)

    def _scores(self, output: Mapping[str, Array]) -> Array:
        import numpy as np

        known = ", ".join(output)
        if self.output is None and len(output) != 1:
            raise UsageError(
                f"{self.name} needs a model with one output; this one has {known}",
                next_step=f"pass TopK({self.k}, output=NAME), or a function of your own",
            )
        name = next(iter(output)) if self.output is None else self.output
        if name not in output:
            raise UsageError(f"{self.name}: there is no output '{name}'; there are {known}")
        scores = np.asarray(output[name], dtype=np.float64)
        if max(scores.shape, default=0) != scores.size:
            raise UsageError(
                f"{self.name}: output '{name}' has shape {list(scores.shape)}; one row of class "
                "scores a sample is wanted",
                next_step="write a metric function for this output",
            )
        if scores.size <= self.k:
            raise UsageError(
                f"{self.name} of {scores.size} scores is always right and shows nothing",
                next_step="choose a smaller k",
            )
        return scores.reshape(-1)

    def _label(self, target: Any, classes: int, index: int) -> int:
        import numpy as np

        wanted = f"a label from 0 to {classes - 1} or a one-hot vector of {classes}"
        mistake = UsageError(f"{self.name}: target {index} is {target!r:.80}, not {wanted}")
        try:
            values = np.asarray(target)
        except ValueError:
            raise mistake from None
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            raise mistake
        if values.size == 1:
            value = float(values.reshape(-1)[0])
            if not value.is_integer() or not 0 <= value < classes:
                raise mistake
            return int(value)
        if max(values.shape, default=0) != values.size or values.size != classes:
            raise mistake
        flat = values.reshape(-1)
        if np.count_nonzero(flat == 1) != 1 or np.count_nonzero(flat) != 1:
            raise mistake
        return int(np.argmax(flat))


class FunctionMetric:
    """A user's function as a Metric.

    The function's attributes ``unit`` (text) and ``larger_is_better`` (False for an error or a
    distance) are kept where it has them.
    """

    def __init__(self, function: MetricFunction) -> None:
        self.function = function
        self.name = _function_name(function)
        self.unit = str(getattr(function, "unit", ""))
        self.larger_is_better = bool(getattr(function, "larger_is_better", True))

    def __call__(self, outputs: Sequence[Mapping[str, Array]], targets: Sequence[Any]) -> Score:
        """Call the function. Raises UsageError where it returns neither number nor Score."""
        result = self.function(list(outputs), list(targets))
        return as_score(result, len(outputs), self.name)


def _function_name(function: Any) -> str:
    """A name that tells two functions apart: lambdas by their line."""
    named = getattr(function, "func", function)  # functools.partial
    name = str(getattr(named, "__name__", type(named).__name__))
    if name == "<lambda>":
        return f"lambda in line {named.__code__.co_firstlineno}"
    return name


def as_metric(metric: Metric | MetricFunction) -> Metric:
    """``metric`` itself where it has a name and a unit already, else wrapped.

    Raises UsageError where it cannot be called.
    """
    if not callable(metric):
        raise UsageError(f"a metric must be a name or callable, not {metric!r:.80}")
    if isinstance(metric, type):
        raise UsageError(
            f"{metric.__name__} is a class, not a metric", next_step="pass an instance of it"
        )
    name, unit = getattr(metric, "name", None), getattr(metric, "unit", None)
    if isinstance(name, str) and isinstance(unit, str):
        return metric  # type: ignore[return-value]
    return FunctionMetric(metric)


def as_score(result: Any, count: int, name: str) -> Score:
    """What a metric returned, as a Score over ``count`` samples where it was a bare number.

    Raises UsageError for anything else; a bool is no score.
    """
    if isinstance(result, Score):
        if result.count != count:
            raise UsageError(
                f"metric '{name}' scored {result.count} samples where there are {count}",
                next_step="return Score(value, len(targets))",
            )
        return result
    no_number = (
        isinstance(result, bool | str | bytes) or str(getattr(result, "dtype", "")) == "bool"
    )
    if not no_number:
        try:
            return Score(float(result), count)
        except (TypeError, ValueError):
            pass
    raise UsageError(
        f"metric '{name}' returned {type(result).__name__}; a float or a Score is wanted",
        next_step="return one number, or pytest_qnnctx.judge.metric.Score(value, count, per_class)",
    )


def sorted_items(classes: Mapping[Hashable, Any]) -> list[tuple[Hashable, Any]]:
    """Items by class: numbers by size where all are numbers, else by their text."""
    if all(isinstance(label, int | float) for label in classes):
        return sorted(classes.items(), key=lambda item: float(item[0]))  # type: ignore[arg-type]
    return sorted(classes.items(), key=lambda item: str(item[0]))


#: What the names ``top1`` and ``top5`` in ``task_metric`` stand for.
BUILT_IN: tuple[Metric, ...] = (TopK(1), TopK(5))
