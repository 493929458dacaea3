"""From a metric's name in a marker to the metric itself."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.metric import Metric
from pytest_qnnctx.judge.metrics import as_metric


def bind_metric(limits: Mapping[str, Any], metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """``limits`` with its ``metric`` (a name or a callable) replaced by a Metric.

    ``metrics`` are the registered ones by name. Limits without a metric come back as they are.
    Raises UsageError for an unknown name.
    """
    bound = dict(limits)
    if "metric" not in bound:
        return bound
    metric = bound["metric"]
    if isinstance(metric, str):
        if metric not in metrics:
            close = get_close_matches(metric, metrics, 1)
            known = ", ".join(sorted(metrics)) or "none"
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise UsageError(
                f"there is no metric '{metric}'; known: {known}",
                next_step=f"{hint}Pass a function (outputs, targets) -> float for one of your own",
            )
        metric = metrics[metric]
    bound["metric"] = as_metric(metric)
    return bound
