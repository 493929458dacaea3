"""What is wrong with a boards file, mistake by mistake. Pure functions on its data.

No message repeats the value of an unknown key or of one that may be a secret.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.boards.sim import SIM
from pytest_qnnctx.parts import find_part

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

KeyPath = tuple[str | int, ...]

_SECRET_KEY = re.compile(
    r"passw(?:or)?d|passphrase|token|secret|credential|private.?key|api.?key|^(?:pass|pwd|pw)$",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"-----BEGIN |PRIVATE KEY"  # key material
    r"|[^\s/:@]+:[^\s/@]+@"  # user:password@host
    r"|^--?(?:\w+-)?(?:password|passwd|passphrase|token|secret|api-key)(?:=|$)",  # an argument
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_WORDS = {
    "string": "text",
    "object": "a mapping",
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
}


@dataclass(frozen=True)
class Mistake:
    """One mistake. ``path`` leads to the key that it is about: ``("boards", "rb3-01", "host")``."""

    path: KeyPath
    text: str


def find_mistakes(data: Any, schema: Mapping[str, Any]) -> tuple[Mistake, ...]:
    """All mistakes of the first kind that has any: secrets, strange text, the schema's, clashes."""
    kinds: tuple[Callable[[], Iterator[Mistake]], ...] = (
        lambda: _secrets(data),
        lambda: _control_characters(data),
        lambda: _schema_mistakes(data, schema),
        lambda: _clashes(data["boards"]),
    )
    for kind in kinds:
        found = tuple(dict.fromkeys(kind()))
        if found:
            return found
    return ()


def _texts(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str, bool]]:
    """Every text in ``value`` with its path; True where it is a key (the path's last step)."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key), key, True
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
    elif isinstance(value, str):
        yield path, value, False


def _secrets(data: Any) -> Iterator[Mistake]:
    for path, text, is_key in _texts(data):
        is_board_name = is_key and len(path) == 2 and path[0] == "boards"
        if is_key and not is_board_name and _SECRET_KEY.search(text):
            yield Mistake(
                path,
                "looks like a secret, and this file is no place for one: it is committed and shown "
                "in reports. Keys belong to the SSH agent or ~/.ssh/config",
            )
        elif not is_key and _SECRET_TEXT.search(text):
            yield Mistake(
                path,
                "holds what looks like a password or a key; take it out of this file, which is "
                "committed and shown in reports (and change the secret)",
            )


def _control_characters(data: Any) -> Iterator[Mistake]:
    for path, text, _ in _texts(data):
        if _CONTROL.search(text):
            yield Mistake(path, "holds a line break or another control character")


def _schema_mistakes(data: Any, schema: Mapping[str, Any]) -> Iterator[Mistake]:
    from jsonschema import Draft202012Validator

    if data is None:
        yield Mistake((), "the file is empty; it needs the key 'boards'")
        return
    meanings = schema["$defs"]["board"]["properties"]
    for error in Draft202012Validator(schema).iter_errors(data):
        yield from _explain(error, meanings)


def _explain(error: ValidationError, meanings: Mapping[str, Any]) -> Iterator[Mistake]:
    """One error of jsonschema in our words; ``meanings`` are a board's keys in the schema."""
    path: KeyPath = tuple(error.absolute_path)
    rule: Mapping[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    value: Any = error.instance
    limit: Any = error.validator_value
    meaning = str(rule.get("description", error.validator))
    if "propertyNames" in error.schema_path:
        yield Mistake((*path, str(value)), f"is no name for a board. {meaning}")
    elif error.validator == "additionalProperties":
        known = list(rule.get("properties", {}))
        for key in value:
            if key not in known and not (not path and key.startswith("x-")):
                yield Mistake((*path, key), f"unknown key; {_closest(key, known)}")
    elif error.validator == "required":
        for key in limit:
            if key not in value:
                about = str(meanings.get(key, {}).get("description", "")).split(". ")[0]
                yield Mistake(path, f"the key {key!r} is missing. {about}".rstrip(" ."))
    elif error.validator == "type":
        wanted = _WORDS.get(limit, str(limit))
        quotes = "; put it in quotes" if limit == "string" and _is_number(value) else ""
        yield Mistake(path, f"must be {wanted}, not {_kind(value)}{quotes}")
    elif error.validator == "not":
        yield Mistake(path, meaning)
    else:
        yield Mistake(path, f"{_show(value)} is no good here. {meaning}")


def _closest(key: str, known: list[str]) -> str:
    close = get_close_matches(key.lower(), known, 1)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)  # bool, too: true in quotes is text


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if _is_number(value):
        return "a number"
    return {"str": "text", "dict": "a mapping", "list": "a list"}[type(value).__name__]


def _show(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return str(value) if _is_number(value) and len(str(value)) <= 60 else _kind(value)


def _clashes(boards: Mapping[str, Mapping[str, Any]]) -> Iterator[Mistake]:
    """What no schema can say; ``boards`` fits the schema."""
    names: dict[str, str] = {}
    devices: dict[tuple[object, ...], str] = {}
    for name, entry in boards.items():
        path: KeyPath = ("boards", name)
        if name.lower() == SIM:
            yield Mistake(
                path, f"the name '{SIM}' belongs to the built-in emulator; choose another"
            )
        other = names.setdefault(name.lower(), name)
        if other != name:
            yield Mistake(path, f"has the name of board '{other}' but for the case of letters")
        if SIM in (tag.lower() for tag in entry.get("tags", ())):
            yield Mistake((*path, "tags"), f"the tag '{SIM}' belongs to the built-in emulator")
        part = find_part(entry["soc"])
        if part is not None and part.htp_arch != entry["htp_arch"]:
            yield Mistake(
                (*path, "htp_arch"),
                f"{entry['htp_arch']} contradicts the soc: the HTP of {part.name} is "
                f"{part.htp_arch}. Correct one of them",
            )
        staging = str(entry.get("staging_dir", ""))
        if ".." in staging.split("/") or posixpath.normpath(staging) in {"/", "//"}:
            yield Mistake((*path, "staging_dir"), "must be a directory of its own, without '..'")
        device = _device(entry)
        if device is not None:
            first = devices.setdefault(device, name)
            if first != name:
                yield Mistake(
                    (*path, "host" if "host" in entry else "serial"),
                    f"is that of board '{first}' too: one board in two entries would be leased "
                    "twice. Keep one entry, and give it tags",
                )


def _device(entry: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What tells one physical board from another; None where the entry does not say."""
    if "host" in entry:
        return ("ssh", entry["host"].lower().rstrip("."), int(entry.get("port", 22)))
    if "serial" in entry:
        return ("adb", entry["serial"], entry.get("adb_server", "").lower())
    return None
