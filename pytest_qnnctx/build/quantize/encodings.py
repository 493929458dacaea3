"""Read an AIMET encodings file, version 0.6.1, 1.0.0 or 2.0.0, into one plain form.

The three versions say the same in different words. Here every entry has a zero point in ONNX's
sense, ``real = (q - zero_point) * scale``: versions 0.6.1 and 1.0.0 write ``offset = -zero_point``
of an unsigned integer, 2.0.0 writes ``y_zero_point`` of the integer type it names. A symmetric
parameter of 0.6.1 or 1.0.0 (offset -128 or -127 at 8 bits) is the signed integer with zero point 0.

Sources: real files of ``aimet-onnx`` 2.42.0, and AIMET's encoding specification.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pytest_qnnctx.build.quantize.encoding_entries import (
    READERS,
    Encoding,
    WrongEntryError,
    short_text,
)
from pytest_qnnctx.errors import Finding, ProductFailure, UsageError

__all__ = ["VERSIONS", "Encoding", "EncodingsFile", "parse_encodings"]

VERSIONS = ("0.6.1", "1.0.0", "2.0.0")

_REEXPORT = "export the ONNX and its encodings again, together, from AIMET; edit neither by hand"
_MAX_DEPTH = 16


@dataclass(frozen=True)
class EncodingsFile:
    """A whole file: ``entries`` by tensor name, in the file's order."""

    path: Path
    version: str
    entries: Mapping[str, Encoding]


def parse_encodings(path: Path) -> EncodingsFile:
    """Read ``path``.

    Raises UsageError where there is no such readable file, ProductFailure where its content cannot
    be used; the failure has one finding (``encoding_invalid``) for each entry that is wrong.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the encodings file {path}: {error.strerror or error}",
            next_step="check encodings= of the qnn_model marker",
        ) from None
    data = _load_json(raw, path)
    if not _is_shallow(data):
        _refuse(path, "is nested too deeply to be an encodings file")
    if not isinstance(data, dict):
        _refuse(path, "is not an encodings file: its top level is not an object")
    version = data.get("version")
    if not isinstance(version, str) or version not in VERSIONS:
        _refuse(
            path,
            f"has the version {short_text(version)}; this tool reads {', '.join(VERSIONS)}",
            next_step="export the encodings in one of these versions",
        )
    entries, findings = _collect(data, version, path)
    if findings:
        raise ProductFailure(
            f"{len(findings)} entries of the encodings file {path} cannot be used",
            next_step=_REEXPORT,
            findings=findings,
        )
    if not entries:
        _refuse(path, "holds no encodings at all")
    return EncodingsFile(Path(path), version, entries)


def _refuse(path: Path, what: str, *, next_step: str = _REEXPORT) -> NoReturn:
    raise ProductFailure(f"the encodings file {path} {what}", next_step=next_step)


class _DuplicateKey(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [key for key, _ in pairs]
        raise _DuplicateKey(next(name for name in names if names.count(name) > 1))
    return result


def _load_json(raw: bytes, path: Path) -> Any:
    try:
        return json.loads(raw, object_pairs_hook=_unique)
    except _DuplicateKey as error:
        _refuse(path, f"names {str(error)!r} twice in one object")
    except RecursionError:
        _refuse(path, "is nested too deeply to be an encodings file")
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, oversized integers
        _refuse(path, f"is not JSON: {error}")


def _is_shallow(data: Any) -> bool:
    """Whether nothing is nested deeper than any encodings file is (so that recursion is safe)."""
    level = [data]
    for _ in range(_MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper += item.values()
            elif isinstance(item, list):
                deeper += item
        if not deeper:
            return True
        level = deeper
    return False


def _collect(
    data: Mapping[str, Any], version: str, path: Path
) -> tuple[dict[str, Encoding], list[Finding]]:
    """Every entry that can be read, and a finding for each that cannot."""
    entries: dict[str, Encoding] = {}
    findings: list[Finding] = []
    for kind, name, raw in _raw_entries(data, version, path):
        try:
            if not isinstance(name, str) or not name or not _is_utf8(name):
                raise WrongEntryError("its name is not text")
            if name in entries:
                raise WrongEntryError("the tensor has two entries")
            entries[name] = READERS[version](kind, name, raw)
        except WrongEntryError as wrong:
            subject = short_text(name)
            findings.append(
                Finding("encoding_invalid", subject, f"entry {subject}: {wrong}", _REEXPORT)
            )
    return entries, findings


def _raw_entries(data: Mapping[str, Any], version: str, path: Path) -> list[tuple[str, Any, Any]]:
    """(kind, name, raw entry) for each entry of the file."""
    if version == "2.0.0":
        sections = [("", "encodings")]
    else:
        sections = [("activation", "activation_encodings"), ("param", "param_encodings")]
    by_name = version == "0.6.1"
    result: list[tuple[str, Any, Any]] = []
    for kind, section in sections:
        content: Any = data.get(section)
        if not isinstance(content, dict if by_name else list):
            word = "an object" if by_name else "a list"
            _refuse(path, f"(version {version}) has no {section!r} that is {word}")
        if isinstance(content, dict):
            result += [(kind, name, raw) for name, raw in content.items()]
        else:
            for index, raw in enumerate(content):
                name = raw.get("name") if isinstance(raw, dict) else None
                result.append((kind, name if name is not None else f"{section}[{index}]", raw))
    return result


def _is_utf8(name: str) -> bool:
    """JSON can spell half of a surrogate pair, which no ONNX name can hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
