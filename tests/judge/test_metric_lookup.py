from __future__ import annotations

import pytest

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.judge.metric_lookup import bind_metric
from pytest_qnnctx.judge.metrics import BUILT_IN, FunctionMetric, TopK

METRICS = {metric.name: metric for metric in BUILT_IN}


def test_a_name_becomes_its_metric_and_the_rest_stays():
    given = {"metric": "top1", "min": 0.9}
    assert bind_metric(given, METRICS) == {"metric": METRICS["top1"], "min": 0.9}
    assert given["metric"] == "top1"


def test_a_function_is_wrapped():
    def iou(outputs, targets):
        return 0.5

    bound = bind_metric({"metric": iou}, METRICS)["metric"]
    assert isinstance(bound, FunctionMetric)
    assert bound.name == "iou"


def test_a_metric_stays_itself():
    own = TopK(3)
    assert bind_metric({"metric": own}, {})["metric"] is own


def test_limits_without_a_metric():
    assert bind_metric({"ms": 5}, METRICS) == {"ms": 5}


def test_an_unknown_name_lists_the_known_and_the_closest():
    with pytest.raises(UsageError) as caught:
        bind_metric({"metric": "top_1"}, METRICS)
    assert "top1, top5" in caught.value.what
    assert "did you mean 'top1'" in caught.value.next_step


def test_an_unknown_name_where_none_is_close_or_known():
    with pytest.raises(UsageError) as caught:
        bind_metric({"metric": "cer"}, METRICS)
    assert "did you mean" not in caught.value.next_step
    with pytest.raises(UsageError, match="none"):
        bind_metric({"metric": "cer"}, {})
