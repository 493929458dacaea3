"""JUnit properties of one test: builtin types only, so that xdist can carry them."""

from __future__ import annotations

from pytest_qnnctx.judge.verdict import shown
from pytest_qnnctx.report.record import TestRecord


def junit_properties(record: TestRecord) -> list[tuple[str, str]]:
    """Name and value pairs for ``report.user_properties``.

    ``qnnctx.family`` is there only where the test did not pass, and tells a model that may not ship
    ("product") from a board or tool that failed ("infrastructure").
    """
    properties = []
    if record.board:
        properties.append(("qnnctx.board", record.board))
    if record.artifact:
        properties.append(("qnnctx.artifact.file", str(record.artifact["file"])))
        properties.append(("qnnctx.artifact.sha256", str(record.artifact["sha256"])))
    if record.problem:
        properties.append(("qnnctx.family", record.problem.family))
    for gate in record.gates:
        label = " (emulated)" if gate["emulated"] else ""
        text = (
            f"{gate['verdict']}{label}: measured {shown(gate['measured'])}, "
            f"limit {shown(gate['limit'])} {gate['unit']}: {gate['evidence']}"
        )
        properties.append((f"qnnctx.gate.{gate['gate']}", text))
    return properties
