"""The acceptance of one model on one board: build, read, run, judge, and keep the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.admission import is_identity_gate
from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError
from pytest_qnnctx.judge.gate import Condition
from pytest_qnnctx.judge.judging import judge_all
from pytest_qnnctx.judge.measurements import Measurements, Need, Outputs
from pytest_qnnctx.judge.verdict import Outcome, Verdict, shown
from pytest_qnnctx.observe import (
    RUN_NEEDS,
    observe_artifact,
    observe_loads,
    observe_quantized,
    observe_reference,
    observe_run,
)

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array, Artifact, Model, Target
    from pytest_qnnctx.workbench import LeasedBoard, Workbench

_NO_DATASET = "the test did not call acceptance.evaluate(dataset)"


class GatesFailed(ProductFailure):
    """At least one gate did not pass; ``verdicts`` has them all.

    ``build_error`` is what ended the build, where that is why.
    """

    def __init__(
        self, what: str, verdicts: Sequence[Verdict], build_error: ProductFailure | None = None
    ) -> None:
        super().__init__(what)
        self.verdicts = tuple(verdicts)
        self.build_error = build_error

    def __str__(self) -> str:
        lines = [self.what]
        for verdict in self.verdicts:
            if verdict.outcome is not Outcome.PASS:
                lines.append(f"  {_told(verdict)}")
        if self.build_error is not None:
            lines += ["There is no binary to judge:", str(self.build_error)]
        return "\n".join(lines)


def _told(verdict: Verdict) -> str:
    """One line: ``max_binary_mb: fail, 2.5 (limit 1 MiB): the binary is 2.5 MiB``."""
    measured = "" if verdict.measured is None else f", {shown(verdict.measured)}"
    limit = "" if verdict.limit is None else f" (limit {shown(verdict.limit)} {verdict.unit}"
    closed = f"{limit.rstrip()})" if limit else ""
    return f"{verdict.gate}: {verdict.outcome}{measured}{closed}: {verdict.evidence}"


class Acceptance:
    """What the fixture ``acceptance`` gives to a test.

    ``conditions`` are the gates that the test's markers ask for, and those that are always on.
    ``open_board`` leases a board when it is first called. After the judgement, ``verdicts`` and
    ``measurements`` hold what was concluded and seen.
    """

    def __init__(
        self,
        workbench: Workbench,
        model: Model,
        target: Target,
        conditions: Sequence[Condition],
        open_board: Callable[[], LeasedBoard],
    ) -> None:
        self.model = model
        self.target = target
        self.verdicts: tuple[Verdict, ...] = ()
        self.measurements = Measurements(target)
        self.board_name: str | None = None
        self._workbench = workbench
        self._conditions = tuple(conditions)
        self._open_board = open_board
        self._samples: list[dict[str, Array]] = []
        self._begun = False
        self._ended_in: BaseException | None = None

    def evaluate(self, dataset: Iterable[Any]) -> tuple[Verdict, ...]:
        """Judge every gate, with ``dataset`` (an iterable of ``(inputs, target)``) for the metrics.

        ``inputs`` maps graph input names to arrays, or is one array where the graph has one input.
        Returns the verdicts where all gates passed. Raises GatesFailed where one did not (an
        inconclusive gate counts as not passed), UsageError where the data does not fit the graph,
        InfrastructureError where the board fails; can be called once.
        """
        if self._begun:
            raise UsageError(
                "acceptance.evaluate was called twice in one test",
                next_step="give all data in one call, or write one test a dataset",
            )
        if dataset is None:
            raise UsageError(
                "acceptance.evaluate got None, which is no dataset",
                next_step="give an iterable of (inputs, target); does its function return it?",
            )
        return self._conclude(dataset)

    @property
    def begun(self) -> bool:
        """Whether the judgement was started."""
        return self._begun

    def insist(self) -> None:
        """To be called when the test's body ended without a failure.

        Judges what it left unjudged (without data: the gates that need outputs do not pass), and
        raises again what it swallowed: no test passes over a verdict, or without one.
        """
        if not self._begun:
            self._conclude(None)
        elif isinstance(self._ended_in, Exception):
            raise self._ended_in
        elif self._ended_in is not None or not self.verdicts:
            left = type(self._ended_in).__name__ if self._ended_in else "it still runs"
            raise UsageError(
                f"acceptance.evaluate did not end ({left}), so nothing was judged",
                next_step="let it end, in the test's own thread",
            )

    def _conclude(self, dataset: Iterable[Any] | None) -> tuple[Verdict, ...]:
        self._begun = True
        try:
            return self._judge_all(dataset)
        except BaseException as error:
            self._ended_in = error
            raise

    def _judge_all(self, dataset: Iterable[Any] | None) -> tuple[Verdict, ...]:
        settings = self._workbench.settings
        known = observe_artifact(
            self._workbench, self.model, self.target, require_hardware=settings.require_hardware
        )
        conditions = self._asked(with_data=dataset is not None)
        try:
            if known.artifact is not None and known.binary is not None:
                known = self._on_board(known, conditions, dataset)
        except InfrastructureError as error:
            # What could be judged is still worth telling; the test errors all the same.
            known = replace(known, missing=dict.fromkeys(Need, f"the board failed: {error.what}"))
            self._judge(known, conditions)
            raise
        self._judge(known, conditions)
        failed = [verdict for verdict in self.verdicts if verdict.outcome is not Outcome.PASS]
        if failed or not self.verdicts:
            on = f" on {self.board_name}" if self.board_name else ""
            raise GatesFailed(
                f"{self.model.name} is not acceptable{on} ({self.target}): {len(failed)} of "
                f"{len(self.verdicts)} gates did not pass",
                self.verdicts,
                known.build_error,
            )
        return self.verdicts

    def _asked(self, *, with_data: bool) -> tuple[Condition, ...]:
        """The conditions; the always-on gates about outputs only where there are outputs."""
        return tuple(
            condition
            for condition in self._conditions
            if with_data
            or not condition.gate.always
            or Need.OUTPUTS not in condition.gate.needs(condition.limits)
        )

    def _on_board(
        self, known: Measurements, conditions: Sequence[Condition], dataset: Iterable[Any] | None
    ) -> Measurements:
        leased = self._open_board()
        self.board_name = leased.name
        known = replace(known, board=leased.facts, emulated=leased.facts.emulated)
        needs = frozenset[Need]().union(*(c.gate.needs(c.limits) for c in conditions)) & RUN_NEEDS
        if not needs:
            return known
        identity = [condition for condition in conditions if is_identity_gate(condition.gate)]
        refused = [v for v in judge_all(identity, known) if v.outcome is not Outcome.PASS]
        if refused:
            reasons = ", ".join(verdict.gate for verdict in refused)
            why = f"nothing was put on the board: {reasons} did not pass"
            return replace(known, missing=dict.fromkeys(needs, why))
        return self._run(leased, known, conditions, needs, dataset)

    def _run(
        self,
        leased: LeasedBoard,
        known: Measurements,
        conditions: Sequence[Condition],
        needs: frozenset[Need],
        dataset: Iterable[Any] | None,
    ) -> Measurements:
        from pytest_qnnctx.dataset import read_dataset

        artifact, binary = known.artifact, known.binary
        assert artifact is not None
        assert binary is not None
        samples, targets = (None, []) if dataset is None else read_dataset(dataset, binary)
        missing: dict[Need, str] = {}
        try:
            if Need.LOADS in needs:
                known = replace(known, loads=observe_loads(leased, artifact, binary, conditions))
            if Need.LATENCY in needs or samples is not None:
                latency, outputs = observe_run(leased, artifact, binary, conditions, samples)
                known = replace(known, latency=latency)
                if samples is not None:
                    known = self._with_outputs(known, artifact, samples, targets, outputs)
        except ProductFailure as failure:
            missing = dict.fromkeys(needs, f"it did not run: {failure.what}")
        if samples is None and Need.OUTPUTS in needs:
            missing[Need.OUTPUTS] = _NO_DATASET
        return replace(known, missing=missing)

    def _with_outputs(
        self,
        known: Measurements,
        artifact: Artifact,
        samples: list[dict[str, Array]],
        targets: Sequence[Any],
        outputs: Sequence[Mapping[str, Array]],
    ) -> Measurements:
        self._samples = samples
        seen = observe_reference(
            self._workbench, self.model, artifact, samples, Outputs(targets, outputs)
        )
        return replace(known, outputs=seen)

    def _judge(self, known: Measurements, conditions: Sequence[Condition]) -> None:
        """Judge, and where a metric failed, look for the step that lost it and judge again."""
        verdicts = judge_all(conditions, known)
        lost = any(
            verdict.outcome is Outcome.FAIL and condition.gate.name == "task_metric"
            for condition, verdict in zip(conditions, verdicts, strict=True)
        )
        if lost and known.outputs is not None and known.artifact is not None:
            outputs = observe_quantized(
                self._workbench, known.artifact, self._samples, known.outputs
            )
            known = replace(known, outputs=outputs)
            verdicts = judge_all(conditions, known)
        self.verdicts, self.measurements = verdicts, known
