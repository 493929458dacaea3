"""The cache's directory: made on first use, and hidden from git."""

from __future__ import annotations

from pathlib import Path


def make_cache_dir(path: Path) -> None:
    """Make ``path`` where it is not there. Raises ``OSError``."""
    path.mkdir(parents=True, exist_ok=True)
    if not (path / ".gitignore").exists():
        (path / ".gitignore").write_text("# Made by pytest-qnnctx\n*\n")
