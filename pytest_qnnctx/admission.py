"""What a binary must be before it is used at all, by the gates that are always on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import ProductFailure
from pytest_qnnctx.judge.gate import Condition
from pytest_qnnctx.judge.judging import judge_all
from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.verdict import Outcome

if TYPE_CHECKING:
    from pytest_qnnctx.binary.info import BinaryInfo
    from pytest_qnnctx.boards.board import BoardFacts
    from pytest_qnnctx.model import Artifact, Target
    from pytest_qnnctx.registry import Registry

_OPTIONS = "options_applied"


def is_identity_gate(gate: Any) -> bool:
    """Whether an always-on gate decides if the binary may be put on the board.

    One that looks at binary and board, and can be judged before anything runs. A gate that needs no
    board judges the binary's quality: where it fails, the others are measured all the same.
    """
    needs = gate.needs({})
    return bool(gate.always) and Need.BOARD in needs and Need.OUTPUTS not in needs


def require_identity(
    registry: Registry,
    artifact: Artifact,
    binary: BinaryInfo,
    target: Target,
    *,
    board: BoardFacts,
    name: str,
) -> None:
    """Raise ProductFailure unless the binary is one for this board and its runtime."""
    known = Measurements(target, board, artifact, binary=binary)
    conditions = [Condition(gate, {}) for gate in registry.gates.values() if is_identity_gate(gate)]
    refused = [v for v in judge_all(conditions, known) if v.outcome is not Outcome.PASS]
    if refused:
        reasons = "; ".join(f"{verdict.gate}: {verdict.evidence}" for verdict in refused)
        raise ProductFailure(
            f"{artifact.path.name} was not put on board {name}: {reasons}",
            next_step="build it for this board's target, with a QNN that its runtime can read",
        )


def require_options(
    registry: Registry, artifact: Artifact, binary: BinaryInfo, target: Target
) -> None:
    """Raise ProductFailure where the compiler did not do what it was asked.

    For a binary that is handed out without being judged: what cannot be read back is no reason to
    withhold it.
    """
    gate = registry.gates[_OPTIONS]
    known = Measurements(target, artifact=artifact, binary=binary)
    (verdict,) = judge_all([Condition(gate, {})], known)
    if verdict.outcome is Outcome.FAIL:
        raise ProductFailure(
            f"{artifact.path.name} is not what was asked of the compiler: {verdict.evidence}",
            next_step="see the configuration and the log that are kept with it; another version of "
            "the SDK may know the option by another name",
        )
