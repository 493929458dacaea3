"""AIMET's encodings as JSON, in any of its three forms, entry by entry."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

_LISTS = ("activation_encodings", "param_encodings", "encodings")


def read_overrides(path: Path) -> dict[str, Any]:
    """Raises OSError, ValueError."""
    data = json.loads(path.read_text())
    if not isinstance(data, dict):
        raise ValueError("the top level is no object")
    return data


def names_of(overrides: dict[str, Any]) -> list[str]:
    """The names of all entries, in order."""
    names: list[str] = []
    for key in _LISTS:
        part = overrides.get(key, ())
        names += [entry["name"] for entry in part] if isinstance(part, list) else list(part)
    return names


def without(overrides: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The same without the entries of these names."""
    kept = dict(overrides)
    for key in _LISTS:
        part = overrides.get(key)
        if isinstance(part, list):
            kept[key] = [entry for entry in part if entry["name"] not in names]
        elif isinstance(part, dict):
            kept[key] = {name: entry for name, entry in part.items() if name not in names}
    return kept


def widened(overrides: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The same with ranges for ``names`` that are a quarter wider, as another method may find."""
    made = json.loads(json.dumps(overrides))
    for key in _LISTS:
        part = made.get(key, {})
        entries = (
            [(entry["name"], [entry]) for entry in part]
            if isinstance(part, list)
            else list(part.items())
        )
        for name, several in entries:
            for entry in several if name in names else ():
                for field in ("scale", "y_scale", "min", "max"):
                    if field in entry:
                        entry[field] = _times(entry[field], 1.25)
    return made


def _times(value: Any, factor: float) -> Any:
    return [v * factor for v in value] if isinstance(value, list) else value * factor
