"""The errors that reach a user.

Two families, sorted by who must act:

* :class:`ProductFailure`: the model or its binary is not acceptable. The test *fails*.
* :class:`InfrastructureError`: a board, a lease, a tool or a disk is at fault. The test *errors*,
  may be run again elsewhere, and never counts against the model.

:class:`UsageError` is a mistake in a call, an option or a configuration file; pytest's floor turns
it into ``pytest.UsageError`` before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One diagnosed fact about a build, a binary or a run.

    ``kind`` is a short stable word that gates look for (``float_op``, ``unsupported_op``,
    ``encoding_unmatched``, ``tensor_uncovered`` ...); ``subject`` is the node, tensor, key or file
    that it is about; ``message`` says what happened and ``next_step`` what to do.
    """

    kind: str
    subject: str
    message: str
    next_step: str = ""


#: As many findings are written out in a message.
SHOWN_FINDINGS = 20


class QnnctxError(Exception):
    """Base of all errors raised on purpose.

    ``what`` says what happened and to which model, board or file; ``next_step`` says what to do.
    """

    def __init__(self, what: str, *, next_step: str = "", findings: Sequence[Finding] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        self.findings = tuple(findings)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  - {finding.message}" for finding in self.findings[:SHOWN_FINDINGS]]
        if len(self.findings) > SHOWN_FINDINGS:
            lines.append(f"  - and {len(self.findings) - SHOWN_FINDINGS} more")
        if self.next_step:
            lines.append(f"Next: {self.next_step}")
        return "\n".join(lines)


class ProductFailure(QnnctxError):
    """The model or its context binary is not acceptable."""


class BuildFailed(ProductFailure):
    """A toolchain refused the model; ``log`` holds the toolchain's whole output."""

    def __init__(
        self,
        what: str,
        *,
        next_step: str = "",
        findings: Sequence[Finding] = (),
        log: str = "",
    ) -> None:
        super().__init__(what, next_step=next_step, findings=findings)
        self.log = log


class BinaryUnreadable(ProductFailure):
    """A file is not a context binary, or a damaged one."""


class InfrastructureError(QnnctxError):
    """A board, lease, tool, store or disk is at fault; says nothing about the model."""


class UsageError(QnnctxError):
    """A mistake in a call, an option, a marker or a configuration file."""
