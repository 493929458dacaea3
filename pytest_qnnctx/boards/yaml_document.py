"""A YAML file as plain data whose every key knows its line.

YAML is read by the rules of its core schema (1.2), as editors do: ``on``, ``no`` and ``2020-01-01``
are text. Refused are duplicate keys, keys that are no text, tags, recursion, and aliases that
expand to something huge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pytest_qnnctx.errors import UsageError

_MAX_BYTES = 256 * 1024
_MAX_VALUES = 50_000
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema's types and no others."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    yaml_constructors = {  # noqa: RUF012
        tag: build
        for tag, build in yaml.SafeLoader.yaml_constructors.items()
        if tag is None
        or tag.removeprefix(_TAG) in {"null", "bool", "int", "float", "str", "seq", "map"}
    }


for _name, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?$", list("-+0123456789.")),
    ("merge", r"^<<$", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)


class YamlDocument:
    """``data`` is what the file says: dicts with text keys, lists, text, numbers, bools, None."""

    def __init__(self, data: Any, root: yaml.Node | None) -> None:
        self.data = data
        self._root = root

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line (from 1) of the key or item at ``path``, or of the nearest one above it."""
        node, line = self._root, 1
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line


def read_document(path: Path) -> YamlDocument:
    """Read one YAML document.

    Raises UsageError where the file cannot be read or is not such a document; the message has the
    line and never the text of the file, which may hold a secret.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"the boards file '{path}' cannot be read: {reason}",
            next_step="correct --boards-file, or leave it out: --board sim needs no file",
        ) from error
    if len(raw) > _MAX_BYTES:
        raise _refused(path, None, f"it is larger than {_MAX_BYTES // 1024} KiB")
    try:
        loader = _Loader(raw)
        try:
            root = loader.get_single_node()
            if root is None:
                return YamlDocument(None, None)
            _check(root, {}, set())
            return YamlDocument(loader.construct_document(root), root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "it is not YAML"
        raise _refused(path, mark.line + 1 if mark else None, reason) from None
    except yaml.reader.ReaderError as error:
        raise _refused(path, None, f"it is no text: {error.reason}") from None
    except yaml.YAMLError:
        raise _refused(path, None, "it is not YAML") from None
    except RecursionError:
        raise _refused(path, None, "it is nested too deeply") from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        # What PyYAML's constructors raise for "!!int abc" and for numbers of 5000 digits.
        raise _refused(path, None, "a value does not fit its type") from None


def _refused(path: Path, line: int | None, reason: str) -> UsageError:
    place = f"{path}:{line}" if line else str(path)
    return UsageError(
        f"the boards file {place} cannot be understood: {reason}",
        next_step="correct the file; an editor with a YAML language server shows the place",
    )


def _check(node: yaml.Node, sizes: dict[int, int], open_nodes: set[int]) -> int:
    """The number of values that ``node`` expands to, each alias counted where it is used."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in sizes:
        return sizes[id(node)]
    if id(node) in open_nodes:
        raise yaml.MarkedYAMLError(None, None, "a value contains itself", node.start_mark)
    open_nodes.add(id(node))
    size = 1
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        children = [value for _, value in node.value]
    else:
        children = node.value
    for child in children:
        size += _check(child, sizes, open_nodes)
    if size > _MAX_VALUES:
        raise yaml.MarkedYAMLError(
            None, None, f"its aliases expand to more than {_MAX_VALUES} values", node.start_mark
        )
    open_nodes.discard(id(node))
    sizes[id(node)] = size
    return size


def _check_keys(node: yaml.MappingNode) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if key.tag == _TAG + "merge":
            continue
        if key.tag != _TAG + "str":
            raise yaml.MarkedYAMLError(
                None, None, "a key is not text; put it in quotes", key.start_mark
            )
        if key.value in lines:
            raise yaml.MarkedYAMLError(
                None,
                None,
                f"the key {key.value[:80]!r} is there twice, first in line {lines[key.value]}",
                key.start_mark,
            )
        lines[key.value] = key.start_mark.line + 1


def _child(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        # Construction has put merged pairs before a mapping's own, which override them.
        for key, value in reversed(node.value):
            if key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child = node.value[step]
        return child.start_mark.line + 1, child
    return None
