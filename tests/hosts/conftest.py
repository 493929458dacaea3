"""Servers for tests that stop theirs, or change what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_sshd(sshd: object, tmp_path: Path) -> Iterator[object]:
    """A running SSH server of this test alone."""
    folder = tmp_path / "own-sshd"
    folder.mkdir()
    server = type(sshd)(folder)  # type: ignore[call-arg]
    server.start()
    yield server
    server.stop()
