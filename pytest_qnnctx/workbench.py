"""One session's tools: builds and reads each binary once, opens boards, knows the settings."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from pytest_qnnctx.binary.info import BinaryInfo
    from pytest_qnnctx.boards.board import Board, BoardFacts
    from pytest_qnnctx.boards.inventory import Inventory
    from pytest_qnnctx.boards.session import BoardSession
    from pytest_qnnctx.build.toolchain import BuildBoard, Progress
    from pytest_qnnctx.config import Settings
    from pytest_qnnctx.model import Array, Artifact, Model, Target
    from pytest_qnnctx.registry import Registry
    from pytest_qnnctx.run.runner import Runner, RunResult
    from pytest_qnnctx.toolchain_choice import Choice

#: A run of all samples that takes longer than this (seconds) counts as the board's failure.
RUN_TIME_LIMIT_S = 1800.0


class Workbench:
    """Made once a process; nothing is opened, imported or built before it is asked for."""

    def __init__(self, settings: Settings, registry: Registry, progress: Progress) -> None:
        self.settings = settings
        self.registry = registry
        self.progress = progress
        self._refused: dict[str, ProductFailure] = {}
        self._binaries: dict[str, BinaryInfo] = {}
        self._told: set[tuple[str, str]] = set()

    def check(self) -> None:
        """Raise UsageError for what would stop every test: told before anything runs."""
        _ = self.boards, self.cache_dir
        with suppress(InfrastructureError):  # each test that needs a binary will tell it
            chosen = self.toolchain.toolchain
            if chosen is not None:
                chosen.identify()

    @cached_property
    def inventory(self) -> Inventory:
        """All boards. Raises UsageError where boards.yaml is no good."""
        from pytest_qnnctx.boards.inventory import load_inventory

        return load_inventory(self.settings.boards_file)

    @cached_property
    def boards(self) -> tuple[Board, ...]:
        """The selected boards. Raises UsageError where none is selected or they do not agree."""
        from pytest_qnnctx.boards.selectors import select

        if self.settings.board is None:
            raise UsageError(
                "no board was selected",
                next_step="choose one with --board NAME, or --board sim for the emulator",
            )
        boards = select(self.inventory, self.settings.board)
        targets = {board.target for board in boards}
        if len(targets) > 1:
            listed = ", ".join(f"{board.name}: {board.target}" for board in boards)
            raise UsageError(
                f"--board {self.settings.board} selects boards of different targets ({listed})",
                next_step="select by SoC or by name: one session judges for one target",
            )
        for board in boards:
            self._check_reachable(board)
        return boards

    def _check_reachable(self, board: Board) -> None:
        """Raise UsageError where this version has no transport or runner for ``board``."""
        try:
            self.registry.transport(board.transport)
            self.registry.runner(board.runner)
        except UsageError as error:
            raise UsageError(
                f"board {board.name} cannot be opened: {error.what}",
                next_step=f"{error.next_step}; --board sim needs no board",
            ) from error

    @cached_property
    def cache_dir(self) -> Path:
        """The cache, made on first use, and hidden from git. Raises UsageError where it cannot."""
        path = self.settings.cache_dir
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not (path / ".gitignore").exists():
                (path / ".gitignore").write_text("# Made by pytest-qnnctx\n*\n")
        except OSError as error:
            raise UsageError(
                f"the cache directory '{path}' cannot be used: {error.strerror or error}",
                next_step="choose another one with --qnnctx-cache-dir",
            ) from error
        return path

    @cached_property
    def target(self) -> Target:
        """What is compiled for: the selected boards' SoC and architecture."""
        return self.boards[0].target

    @cached_property
    def toolchain(self) -> Choice:
        """The toolchain of this session, as far as it is known before a model is."""
        from pytest_qnnctx.toolchain_choice import session_choice

        return session_choice(self.registry, self.settings.toolchain)

    def artifact(self, model: Model, target: Target) -> Artifact:
        """The context binary of ``model``, from the manifest, the store, or built.

        Its provenance says how it was chosen. A model that failed to build once fails again at
        once. Raises as :func:`~pytest_qnnctx.build.builder.build_from` does.
        """
        from pytest_qnnctx.build.builder import build_from, read_sources
        from pytest_qnnctx.build.store import Store
        from pytest_qnnctx.toolchain_choice import choose

        store, sources = Store(self.cache_dir), read_sources(model, target)
        choice = choose(self.registry, self.settings.toolchain, sources, store)
        artifact = choice.artifact
        if artifact is None:
            assert choice.toolchain is not None
            artifact = build_from(
                sources,
                choice.toolchain,
                store,
                progress=self.progress,
                choice=choice.reason,
                open_board=self._board_for_a_build if self.settings.board else None,
                refused=self._refused,
            )
        self._tell(model, choice)
        assert artifact.provenance is not None
        return replace(artifact, provenance=replace(artifact.provenance, choice=choice.reason))

    def _tell(self, model: Model, choice: Choice) -> None:
        """Say how a binary was come by, where the session's header does not say it already."""
        told = (model.name, choice.reason)
        if self.settings.toolchain == "auto" and told not in self._told:
            self._told.add(told)
            if choice.artifact is not None or choice.reason != self.toolchain.reason:
                self.progress(f"{model.name}: {choice.reason}")

    @contextmanager
    def _board_for_a_build(self) -> Iterator[BuildBoard]:
        """One of the selected boards, for a toolchain that compiles there."""
        from pytest_qnnctx.build.toolchain import BuildBoard

        with self._open_session("a build") as session:
            yield BuildBoard(
                session.transport,
                session.workdir,
                session.board.lib_dir,
                session.stage,
            )

    def read(self, artifact: Artifact) -> BinaryInfo:
        """What the binary says of itself. Raises BinaryUnreadable."""
        from pytest_qnnctx.binary.reader import read_binary

        if artifact.sha256 not in self._binaries:
            self._binaries[artifact.sha256] = read_binary(artifact.path)
        return self._binaries[artifact.sha256]

    def proven(self, model: Model, target: Target) -> Artifact:
        """:meth:`artifact`, for use without the gates: one that is what was asked of the compiler.

        Raises ProductFailure where it is not.
        """
        from pytest_qnnctx.admission import require_options

        artifact = self.artifact(model, target)
        require_options(self.registry, artifact, self.read(artifact), target)
        return artifact

    def _open_session(self, note: str) -> BoardSession:
        from pytest_qnnctx.boards.session import open_any_session

        return open_any_session(
            self.boards,
            self.registry.transport,
            lock_dir=_lease_dir(),
            lease_timeout_s=self.settings.lease_timeout_s,
            note=note,
        )

    def lease(self, note: str) -> LeasedBoard:
        """Lease one of the selected boards, open it and find out what it is.

        ``note`` tells others who holds it. Raises InfrastructureError where that fails.
        """
        from pytest_qnnctx.run.recording import RecordingRunner

        session = self._open_session(note)
        try:
            runner = self.registry.runner(session.board.runner)
            facts = runner.probe(session)
        except BaseException:
            session.close()
            raise
        recorded = self.cache_dir / "emulated"
        recording = RecordingRunner(runner, facts, recorded, fresh=self.settings.fresh)
        return LeasedBoard(session, recording, facts, self)


@dataclass(frozen=True)
class LeasedBoard:
    """A board that is ours until it is closed; what the fixture ``board`` gives.

    ``facts`` is what the board said of itself.
    """

    session: BoardSession
    runner: Runner
    facts: BoardFacts
    workbench: Workbench

    @property
    def name(self) -> str:
        """The board's name in boards.yaml, or ``sim``."""
        return self.session.board.name

    @property
    def target(self) -> Target:
        """Its SoC and architecture."""
        return self.session.board.target

    def run(
        self,
        context_binary: Artifact,
        inputs: Mapping[str, Array] | Array,
        *,
        timeout_s: float = RUN_TIME_LIMIT_S,
    ) -> dict[str, Array]:
        """Run one inference and return its outputs by name, as float32 arrays.

        ``inputs`` maps graph input names to arrays in the graph's shapes; a bare array is enough
        for a graph with one input. Raises ProductFailure where the binary is for another
        architecture, SoC or newer QNN than the board's (nothing is staged then) or is refused by
        the runtime; UsageError where the inputs do not fit.
        """
        from pytest_qnnctx.dataset import as_sample

        binary = self.workbench.read(context_binary)
        self.check_identity(context_binary, binary)
        sample = as_sample(inputs, binary, "inputs")
        return self.execute(context_binary, binary, [sample], timeout_s=timeout_s).outputs[0]

    def execute(
        self,
        artifact: Artifact,
        binary: BinaryInfo,
        samples: Sequence[Mapping[str, Array]],
        *,
        repeats: int = 1,
        timeout_s: float = RUN_TIME_LIMIT_S,
    ) -> RunResult:
        """See :meth:`pytest_qnnctx.run.runner.Runner.execute`."""
        return self.runner.execute(
            self.session, artifact, binary, samples, repeats=repeats, timeout_s=timeout_s
        )

    def check_identity(self, artifact: Artifact, binary: BinaryInfo) -> None:
        """Raise ProductFailure unless binary and board agree, by the gates that are always on."""
        from pytest_qnnctx.admission import require_identity

        require_identity(
            self.workbench.registry,
            artifact,
            binary,
            self.target,
            board=self.facts,
            name=self.name,
        )

    def close(self) -> None:
        """End the lease."""
        self.session.close()

    def __enter__(self) -> LeasedBoard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lease_dir() -> Path:
    """One directory a user and host: sessions of all projects exclude each other from a board."""
    return Path(tempfile.gettempdir()) / f"qnnctx-leases-{os.getuid()}"
