"""What a compiler's log says went wrong, as findings with a cause and a next step."""

from __future__ import annotations

import re
from collections.abc import Collection

from pytest_qnnctx.build.compiled_graph import plain_name
from pytest_qnnctx.errors import Finding
from pytest_qnnctx.model import Target

_COLOUR = re.compile(r"\x1b\[[0-9;]*m|\[\d+;\d+m|(?<=\])\[m|\[m$", re.MULTILINE)
_UNSUPPORTED = re.compile(r"Unsupported nodes in QNN EP:\s*((?:\{[^}]*\}\s*)+)")
_NODE = re.compile(r"\{\s*name:\s*(.*?),\s*type:\s*([^,}\s]+)\s*\}")
_ERROR_LINE = re.compile(r"\b(?:[EF]:onnxruntime|error|failed|exception)\b", re.IGNORECASE)


def plain_log(text: str) -> str:
    """``text`` without terminal colours."""
    return _COLOUR.sub("", text)


def unsupported_nodes(log: str) -> tuple[tuple[str, str], ...]:
    """(node name, op type) of every node that the HTP's own validation refused, each once."""
    found: dict[tuple[str, str], None] = {}
    for block in _UNSUPPORTED.finditer(log):
        for name, op in _NODE.findall(block.group(1)):
            found[(plain_name(name), op)] = None
    return tuple(found)


def diagnose(log: str, float_nodes: Collection[str], target: Target) -> tuple[Finding, ...]:
    """Findings for a refused model.

    ``float_nodes`` are the model's nodes that compute in floating point: on an HTP without FP16
    that is why they were refused (kind ``float_op``); any other is ``unsupported_op``.
    """
    findings = []
    for name, op in unsupported_nodes(log):
        if name in float_nodes and target.has_float is not True:
            findings.append(
                Finding(
                    "float_op",
                    f"{name} ({op})",
                    f"{op} '{name}' computes in floating point, which HTP {target.htp_arch} of "
                    f"{target.soc} cannot do",
                    "quantize it: give the model encodings=FILE, or calibration= inputs",
                )
            )
        else:
            findings.append(
                Finding(
                    "unsupported_op",
                    f"{name} ({op})",
                    f"{op} '{name}' is not supported on {target} with these types and shapes",
                    "replace the op, or change its data types or shapes",
                )
            )
    return tuple(findings)


def last_errors(log: str, count: int = 3) -> str:
    """The last lines of ``log`` that look like errors, for the end of a message."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.search(line)] or lines
    return "\n".join(line[:300] for line in errors[-count:])
