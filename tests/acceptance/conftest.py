"""Fixtures for inner sessions on the real engine."""

from __future__ import annotations

import nets
import pytest
from projects import Project


@pytest.fixture
def project(
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Project:
    """An empty project. All share one cache, for all workers: it is made for that."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    for name in ("QNNCTX_BOARD", "QNNCTX_CACHE_DIR", "QNNCTX_JSON"):
        monkeypatch.delenv(name, raising=False)
    return Project(pytester, shared / "qnnctx-cache")


@pytest.fixture
def classifier(project: Project) -> Project:
    """A project with the classifier and its encodings as ``net``."""
    project.net("net", nets.classifier())
    return project
