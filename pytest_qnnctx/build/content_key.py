"""The content key: one hash over everything that decides which bytes a build produces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pytest_qnnctx.build.toolchain import ToolchainId
from pytest_qnnctx.model import Model, Target

#: Raise it when this package changes what it writes for the same inputs.
KEY_VERSION = 1


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(files: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Role -> ``{"name": file name, "sha256": hash}``, as provenance records it."""
    return {role: {"name": path.name, "sha256": file_sha256(path)} for role, path in files.items()}


def content_key(
    model: Model,
    target: Target,
    toolchain: ToolchainId,
    *,
    file_hashes: Mapping[str, str],
    options: Mapping[str, str],
    calibration: str | None,
) -> str:
    """Equal exactly where name, files, shapes, target, toolchain and options are equal.

    ``file_hashes`` maps each file's role to its sha256 (external data has roles of its own), so
    that neither paths nor modification times matter. ``calibration`` is the hash of the inputs.
    """
    parts = {
        **_sources(model, target, file_hashes, calibration),
        "toolchain": asdict(toolchain),
        "options": dict(sorted(options.items())),
    }
    return _sha256(parts)


def source_key(
    model: Model, target: Target, *, file_hashes: Mapping[str, str], calibration: str | None
) -> str:
    """Like :func:`content_key`, whatever the toolchain: what was to be built, not how."""
    return _sha256(_sources(model, target, file_hashes, calibration))


def _sources(
    model: Model, target: Target, file_hashes: Mapping[str, str], calibration: str | None
) -> dict[str, object]:
    return {
        "key_version": KEY_VERSION,
        "name": model.name,
        "files": dict(sorted(file_hashes.items())),
        "input_shapes": {name: list(shape) for name, shape in sorted(model.input_shapes.items())},
        "calibration": calibration,
        "target": asdict(target),
    }


def _sha256(parts: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
