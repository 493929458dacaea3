"""What a task metric is: a score of outputs against targets, in the task's own terms."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array


@dataclass(frozen=True)
class Score:
    """A metric's value over ``count`` samples, and per class where the metric has classes.

    Larger is better unless the metric says otherwise. Either may be NaN: the gate then fails.
    """

    value: float
    count: int
    per_class: Mapping[Hashable, float] = field(default_factory=dict)


class Metric(Protocol):
    """A metric; offered by name through the hook ``pytest_qnnctx_metrics``."""

    name: str
    unit: str

    def __call__(self, outputs: Sequence[Mapping[str, Array]], targets: Sequence[Any]) -> Score:
        """Score ``outputs`` (one ``{name: array}`` a sample) against ``targets``.

        Raises UsageError where the outputs do not have the form that the metric needs.
        """
        ...
