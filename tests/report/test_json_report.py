"""The JSON report: strict JSON, in the form of its schema, whole or absent."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.judge.verdict import Outcome, Verdict
from pytest_qnnctx.report.json_report import SCHEMA_FILE, report_json, write_json
from pytest_qnnctx.report.junit import junit_properties
from pytest_qnnctx.report.record import Problem, SessionRecord, TestRecord, gate_json, plain

SCHEMA = json.loads(SCHEMA_FILE.read_text())
NAN = Verdict(
    "task_metric(top1)",
    Outcome.FAIL,
    float("nan"),
    np.float64(0.95),  # type: ignore[arg-type]
    "accuracy",
    "the score is NaN",
    details={
        "path": Path("x"),
        "scores": np.float32(1.5),
        3: (1, np.int64(2)),
        "inf": float("inf"),
    },
)


def full_report():
    tests = [
        TestRecord("a", "failed", "sim", True, model="net", gates=(gate_json(NAN),)),
        TestRecord("b", "error", problem=Problem("infrastructure", "board lost")),
    ]
    return report_json(SessionRecord({"python": "3.11"}, "sim", ("sim",)), tests, 1)


def test_it_has_the_form_of_its_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(full_report(), SCHEMA)


def test_the_schema_refuses_what_is_not_a_report():
    broken = full_report()
    broken["tests"][0]["gates"][0]["verdict"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError, match="perhaps"):
        jsonschema.validate(broken, SCHEMA)


def test_it_is_strict_json_even_with_nan(tmp_path):
    write_json(tmp_path / "new" / "r.json", full_report())
    text = (tmp_path / "new" / "r.json").read_text()
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    gate = read["tests"][0]["gates"][0]
    assert (gate["measured"], gate["limit"]) == ("nan", 0.95)
    assert gate["details"] == {"path": "x", "scores": 1.5, "3": [1, 2], "inf": "inf"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["r.json"]


def test_where_it_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="could not be written"):
        write_json(tmp_path / "file" / "r.json", full_report())


def test_junit_properties_are_builtin_text():
    record = TestRecord(
        "a", "failed", "sim", gates=(gate_json(NAN),), problem=Problem("product", "no")
    )
    properties = dict(junit_properties(record))
    assert properties["qnnctx.board"] == "sim"
    assert properties["qnnctx.family"] == "product"
    assert properties["qnnctx.gate.task_metric(top1)"].startswith("fail: measured nan, limit 0.95")
    assert {type(value) for value in properties.values()} == {str}


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_plain_gives_strict_json(value):
    json.dumps(plain(value), allow_nan=False)
    assert plain(plain(value)) == plain(value)


def test_a_record_survives_the_way_through_json():
    record = TestRecord("a", "error", "sim", True, problem=Problem("infrastructure", "gone"))
    assert TestRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
