"""What a runner is: a way to load and run a context binary on a leased board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.boards.board import BoardFacts
from pytest_qnnctx.boards.session import BoardSession
from pytest_qnnctx.model import Artifact

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array, Sample


@dataclass(frozen=True)
class RunResult:
    """Outputs and times of one process on the board.

    ``outputs`` has one ``{name: array}`` per sample, float32, shapes as the graph has them.
    ``load_ms`` is the time to create the context from the binary in that process (milliseconds);
    ``inference_ms`` one value per inference, in order. ``emulated``: see BoardFacts.
    ``recorded_at`` is the date of a run that was repeated from a record, else empty.
    """

    outputs: tuple[dict[str, Array], ...]
    load_ms: float
    inference_ms: tuple[float, ...]
    emulated: bool
    engine: str
    log: str = ""
    recorded_at: str = ""


class Runner(Protocol):
    """A runner; offered through the hook ``pytest_qnnctx_runners``."""

    name: str

    def probe(self, session: BoardSession) -> BoardFacts:
        """Find out what the board is and which QNN runtime it has."""
        ...

    def execute(
        self,
        session: BoardSession,
        artifact: Artifact,
        binary: BinaryInfo,
        samples: Sequence[Sample],
        *,
        repeats: int = 1,
        timeout_s: float,
    ) -> RunResult:
        """Stage the artifact, load it in a fresh process and run every sample ``repeats`` times.

        With no samples it only loads. Raises ProductFailure where the runtime refuses the binary
        or an input does not fit the graph, InfrastructureError where the board is at fault.
        """
        ...
