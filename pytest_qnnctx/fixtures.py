"""The fixtures: ``qnn_model``, ``target``, ``context_binary``, ``board``, ``acceptance``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_qnnctx.acceptance import Acceptance
    from pytest_qnnctx.model import Artifact, Model, Target
    from pytest_qnnctx.workbench import LeasedBoard, Workbench

WORKBENCH: pytest.StashKey[Workbench] = pytest.StashKey()
ACCEPTANCE: pytest.StashKey[Acceptance] = pytest.StashKey()
ARTIFACT: pytest.StashKey[Artifact] = pytest.StashKey()
BOARD: pytest.StashKey[LeasedBoard] = pytest.StashKey()

#: Whether the hooks around a test's body look after its acceptance.
WATCHED: pytest.StashKey[bool] = pytest.StashKey()

#: A test that uses one of these is one of ours.
NAMES = frozenset({"target", "context_binary", "board", "acceptance", "_qnnctx_lease"})


class _Lease:
    """One test's lease: opened when it is first asked for, closed when the test ends."""

    def __init__(self, workbench: Workbench, item: pytest.Item) -> None:
        self._workbench, self._item = workbench, item
        self._leased: LeasedBoard | None = None

    def open(self) -> LeasedBoard:
        if self._leased is None:
            self._leased = self._workbench.lease(self._item.nodeid)
            self._item.stash[BOARD] = self._leased
        return self._leased

    def close(self) -> None:
        if self._leased is not None:
            self._leased.close()
            for problem in self._leased.session.problems:
                warnings.warn(pytest.PytestWarning(f"qnnctx: {problem}"), stacklevel=1)


@pytest.fixture
def _qnnctx_lease(request: pytest.FixtureRequest) -> Iterator[_Lease]:
    lease = _Lease(request.config.stash[WORKBENCH], request.node)
    yield lease
    lease.close()


@pytest.fixture
def qnn_model(request: pytest.FixtureRequest) -> Model:
    """The model that the marker qnn_model declares, as a pytest_qnnctx.Model.

    Override it to make models in code: return Model(path, encodings=..., calibration=...).
    """
    from pytest_qnnctx.markers import model_of

    return model_of(request.node, request.config.rootpath)


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    """The SoC and HTP architecture of the selected boards."""
    return request.config.stash[WORKBENCH].target


@pytest.fixture
def context_binary(request: pytest.FixtureRequest, qnn_model: Model, target: Target) -> Artifact:
    """The context binary of the test's model for the target: path, sha256, provenance.

    It is built once and kept; a model that does not compile fails the test, and so does a binary
    that is not what was asked of the compiler.
    """
    from pytest_qnnctx.markers import as_model

    artifact = request.config.stash[WORKBENCH].proven(as_model(qnn_model), target)
    request.node.stash[ARTIFACT] = artifact
    return artifact


@pytest.fixture
def board(request: pytest.FixtureRequest, _qnnctx_lease: _Lease) -> LeasedBoard:
    """A leased board: board.run(context_binary, inputs) returns outputs by name.

    The lease ends with the test. A board that cannot be had is an error, not a failure.
    """
    if "context_binary" in request.fixturenames:
        # First the binary: no board stands idle during a build, and a build on the board needs it.
        request.getfixturevalue("context_binary")
    return _qnnctx_lease.open()


@pytest.fixture
def acceptance(
    request: pytest.FixtureRequest, qnn_model: Model, target: Target, _qnnctx_lease: _Lease
) -> Iterator[Acceptance]:
    """Judges the model: acceptance.evaluate(dataset) judges every gate of the test's markers.

    The dataset is an iterable of (inputs, target). Without that call the gates that need no data
    are judged when the test ends, and those that need data fail.
    """
    from pytest_qnnctx.acceptance import Acceptance
    from pytest_qnnctx.markers import as_model, conditions_of
    from pytest_qnnctx.outcomes import watch

    watch(request.config, request.node)

    workbench = request.config.stash[WORKBENCH]
    conditions = conditions_of(request.node, workbench.registry)
    made = Acceptance(workbench, as_model(qnn_model), target, conditions, _qnnctx_lease.open)
    request.node.stash[ACCEPTANCE] = made
    yield made
    if not request.node.stash.get(WATCHED, False):
        made.insist()  # it was first asked for in the test's body, where no hook saw the end
