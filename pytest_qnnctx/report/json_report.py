"""The report as JSON, in the form of ``report.schema.json`` beside this file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.report.record import SessionRecord, TestRecord, plain

SCHEMA_VERSION = 1
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


def report_json(
    session: SessionRecord, tests: Iterable[TestRecord], exit_status: int
) -> dict[str, Any]:
    """The whole report as builtin types."""
    shared = {**asdict(session), "exit_status": exit_status}
    return {
        "schema_version": SCHEMA_VERSION,
        "session": plain(shared),
        "tests": [plain(test.to_json()) for test in tests],
    }


def check_writable(path: Path | None) -> None:
    """Raise UsageError where a report could not be written to ``path``: known before it is due."""
    if path is None:
        return
    try:
        path = path.resolve()  # a link is followed, not replaced
        path.parent.mkdir(parents=True, exist_ok=True)
        if _is_special(path):
            return
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"the JSON report '{path}' cannot be written: {error.strerror or error}",
            next_step="choose another file with --qnnctx-json",
        ) from error


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Write ``report`` so that ``path`` is whole or as it was.

    Raises InfrastructureError where it cannot be written.
    """
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    try:
        path = path.resolve()
        if _is_special(path):
            path.write_text(text)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InfrastructureError(
            f"the JSON report '{path}' could not be written: {error.strerror or error}",
            next_step="choose another file with --qnnctx-json",
        ) from error


def _is_special(path: Path) -> bool:
    """Whether ``path`` is a device or a pipe, which is written to and must not be replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()
