"""The text of a manifest: parsed strictly, and written so that a diff of it can be read."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from pytest_qnnctx.build.pins.manifest import MANIFEST_SCHEMA, Manifest, Pin, PinnedBinary, Source
from pytest_qnnctx.build.pins.store_place import parse_store
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Provenance

_CONFLICT = re.compile(r"^(?:<{7}|>{7}|={7}|\|{7})(?: .*)?$", re.MULTILINE)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ROLE = re.compile(
    r"onnx|encodings|calibration|reference|(?:external_data|calibration|reference_external_data):.+"
)
_SOC, _ARCH, _QUANTIZATION = (
    re.compile(text) for text in (r"[A-Z0-9][A-Z0-9_.+-]*", r"v\d+", r"[A-Za-z0-9][A-Za-z0-9._+-]*")
)
#: A name of a file in a store is part of a URL, so what has a meaning there is left out.
_NO_FILE_NAME = re.compile(r'[\x00-\x1f\x7f\\:?#%*"<>|\[\]]')
_RESTORE = (
    "restore it from version control; or delete it, and pin each model again: "
    "qnnctx build MODEL --board NAME --update-manifest"
)


def parse(content: bytes, path: Path) -> Manifest:
    """The manifest in ``content``, which was read from ``path``. Raises UsageError."""
    at = _At(path)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        at.fail("it is not UTF-8 text")
    if marker := _CONFLICT.search(text):
        line = text.count("\n", 0, marker.start()) + 1
        at.fail(
            f"a merge conflict is not resolved (line {line}: '{marker.group()[:40]}')",
            "take one side for each pin as a whole, then run qnnctx build --update-manifest",
        )
    try:
        data = json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        at.fail(f"it is no JSON: {error.msg} (line {error.lineno}, column {error.colno})")
    except (ValueError, RecursionError) as error:
        at.fail(f"it is no JSON that this tool wrote: {error}")
    if not isinstance(data, dict) or "schema_version" not in data:
        at.fail("it has no schema_version", "is it a manifest of qnnctx?")
    version = data["schema_version"]
    if type(version) is int and version > MANIFEST_SCHEMA:
        at.fail(
            f"it has schema version {version}, and this version of pytest-qnnctx knows "
            f"{MANIFEST_SCHEMA}",
            "update pytest-qnnctx: a newer one wrote it",
        )
    if type(version) is not int or version != MANIFEST_SCHEMA:
        at.fail(f"schema_version is {version!r}, not {MANIFEST_SCHEMA}")
    at.keys(data, {"schema_version", "pins"}, {"store"})
    store = data.get("store")
    if store is not None:
        store = parse_store(at.text(store, "store"), path.parent, f"{path}: store")
    pins = at.mapping(data["pins"], "pins")
    return Manifest(path, {name: _pin(at, name, value) for name, value in pins.items()}, store)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"'{key}' is there twice")
        found[key] = value
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


@dataclass(frozen=True)
class _At:
    """A place in the manifest; what it refuses, it names."""

    path: Path
    pin: str = ""

    def fail(self, why: str, next_step: str = _RESTORE) -> NoReturn:
        pin = f" pin '{self.pin}':" if self.pin else ""
        raise UsageError(f"the manifest {self.path}:{pin} {why}", next_step=next_step)

    def mapping(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.fail(f"{key} is no mapping")
        return value

    def text(self, value: Any, key: str, pattern: re.Pattern[str] | None = None) -> str:
        if not isinstance(value, str) or not value:
            self.fail(f"{key} is no text")
        if pattern is not None and not pattern.fullmatch(value):
            self.fail(f"{key} is {value[:80]!r}, which cannot be one")
        return value

    def count(self, value: Any, key: str) -> int:
        if type(value) is not int or value < 1:
            self.fail(f"{key} is {value!r}, not a positive whole number")
        return value

    def keys(self, value: Mapping[str, Any], needed: set[str], other: set[str]) -> None:
        for key in sorted(needed - set(value)):
            self.fail(f"the key '{key}' is missing")
        for key in sorted(set(value) - needed - other):
            self.fail(
                f"the key '{key[:80]}' is unknown",
                "correct it, or update pytest-qnnctx if it is new",
            )


def _pin(manifest: _At, name: str, value: Any) -> Pin:
    at = _At(manifest.path, name)
    data = at.mapping(value, "the pin")
    needed = {"model", "target", "sources", "input_shapes", "calibration", "binary", "provenance"}
    at.keys(data, needed, set())
    target = at.mapping(data["target"], "target")
    at.keys(target, {"soc", "htp_arch"}, set())
    calibration = data["calibration"]
    if calibration is not None:
        calibration = at.text(calibration, "calibration", _SHA256)
    pin = Pin(
        model=at.text(data["model"], "model"),
        soc=at.text(target["soc"], "soc", _SOC),
        htp_arch=at.text(target["htp_arch"], "htp_arch", _ARCH),
        sources=_sources(at, data["sources"]),
        binary=_binary(at, data["binary"]),
        provenance=_provenance(at, data["provenance"]),
        input_shapes=_shapes(at, data["input_shapes"]),
        calibration=calibration,
    )
    if name != pin.name:
        at.fail(f"by its model and target it is '{pin.name}'")
    made = pin.provenance
    if (made.sha256, made.size_bytes, made.model, made.target["htp_arch"], made.target["soc"]) != (
        pin.binary.sha256,
        pin.binary.size_bytes,
        pin.model,
        pin.htp_arch,
        pin.soc,
    ):
        at.fail("its provenance is of another binary")
    return pin


def _sources(at: _At, value: Any) -> dict[str, Source]:
    found = {}
    for role, entry in at.mapping(value, "sources").items():
        at.text(role, "a source's role", _ROLE)
        data = at.mapping(entry, f"source {role}")
        at.keys(data, {"path", "sha256"}, set())
        path = at.text(data["path"], f"the path of {role}")
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or "\0" in path or "\\" in path:
            at.fail(
                f"the path of {role} is {path[:200]!r}, outside the manifest's directory",
                "keep the manifest in a directory that holds the models, and pin them again",
            )
        found[role] = Source(path, at.text(data["sha256"], f"the sha256 of {role}", _SHA256))
    if "onnx" not in found:
        at.fail("it has no source 'onnx'")
    return found


def _binary(at: _At, value: Any) -> PinnedBinary:
    data = at.mapping(value, "binary")
    at.keys(data, {"file", "sha256", "size_bytes"}, set())
    file = data["file"]
    if file is not None:
        pure = PurePosixPath(at.text(file, "the binary's file"))
        if pure.is_absolute() or ".." in pure.parts or _NO_FILE_NAME.search(file):
            at.fail(f"the binary's file is {file[:200]!r}, not the name of a file in the store")
    sha256 = at.text(data["sha256"], "the binary's sha256", _SHA256)
    return PinnedBinary(file, sha256, at.count(data["size_bytes"], "the binary's size_bytes"))


def _shapes(at: _At, value: Any) -> dict[str, tuple[int, ...]]:
    found = {}
    for name, shape in at.mapping(value, "input_shapes").items():
        if not isinstance(shape, list) or not shape:
            at.fail(f"the shape of input '{name}' is no list")
        found[name] = tuple(at.count(size, f"a size of input '{name}'") for size in shape)
    return found


def _provenance(at: _At, value: Any) -> Provenance:
    data = at.mapping(value, "provenance")
    try:
        made = Provenance.from_json(data)
        target = dict(made.target)
        _ = target["soc"], target["htp_arch"], dict(made.toolchain), dict(made.files)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        at.fail(
            f"its provenance cannot be read ({type(error).__name__}: {error})",
            "pin it again, or update pytest-qnnctx if a newer one wrote it",
        )
    at.text(made.quantization, "the provenance's quantization", _QUANTIZATION)
    return made


# --- writing ----------------------------------------------------------------------------------

#: Plain lists and mappings up to this many characters stand on one line.
_LONGEST_LINE = 140


def render(manifest: Manifest) -> str:
    """The same text for the same content, whatever the order in which it came to be."""
    data: dict[str, Any] = {"schema_version": MANIFEST_SCHEMA}
    if manifest.store is not None:
        data["store"] = manifest.store.text
    data["pins"] = {name: _pin_data(pin) for name, pin in sorted(manifest.pins.items())}
    return _written(data, 0) + "\n"


def pin_sha256(pin: Pin) -> str:
    """A hash over all that ``pin`` says."""
    return hashlib.sha256(json.dumps(_pin_data(pin), sort_keys=True).encode()).hexdigest()


def _pin_data(pin: Pin) -> dict[str, Any]:
    binary = pin.binary
    return {
        "model": pin.model,
        "target": {"soc": pin.soc, "htp_arch": pin.htp_arch},
        "sources": {
            role: {"path": source.path, "sha256": source.sha256}
            for role, source in sorted(pin.sources.items())
        },
        "input_shapes": {name: list(shape) for name, shape in sorted(pin.input_shapes.items())},
        "calibration": pin.calibration,
        "binary": {
            "file": binary.file,
            "sha256": binary.sha256,
            "size_bytes": binary.size_bytes,
        },
        "provenance": _sorted(pin.provenance.to_json()),
    }


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


def _written(value: Any, depth: int) -> str:
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, allow_nan=False)
    children = list(value.values()) if isinstance(value, dict) else value
    if depth and not any(isinstance(child, dict | list) and child for child in children):
        line = json.dumps(value, allow_nan=False)
        if len(line) <= _LONGEST_LINE:
            return line
    inner = "  " * (depth + 1)
    items = [_written(child, depth + 1) for child in children]
    if isinstance(value, dict):
        keys = [json.dumps(key) for key in value]
        items = [f"{key}: {item}" for key, item in zip(keys, items, strict=True)]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    lines = ",\n".join(f"{inner}{item}" for item in items)
    return f"{opening}\n{lines}\n{'  ' * depth}{closing}"
