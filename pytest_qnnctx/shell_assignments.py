"""Files of shell assignments (``KEY=VALUE``), read as data: what would need a shell is refused.

Taken: ``export``, comments, single and double quotes, backslashes, CRLF. Refused, with the line's
number and never its text: expansions (``$``, backticks, ``~``), operators, several words, quotes or
commands that go on in the next line, a key given twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_qnnctx.errors import UsageError

_START = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=")
_BLANK = re.compile(r"[ \t]*(?:#.*)?")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>()~#]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_EXPANDED = "{} would be expanded by a shell, and nothing here is: write the value out"


@dataclass(frozen=True)
class Assignment:
    """One assignment; ``line`` counts from 1."""

    key: str
    value: str
    line: int


class _Refused(Exception):
    pass


def parse_assignments(text: str, name: str) -> tuple[Assignment, ...]:
    """All assignments of ``text``, the content of the file ``name``.

    Raises UsageError that names file and line where one is no plain assignment.
    """
    found: dict[str, Assignment] = {}
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r")
        try:
            parsed = _parse_line(line)
            if parsed is None:
                continue
            key, value = parsed
            if key in found:
                raise _Refused(f"{key} was already given in line {found[key].line}")
        except _Refused as refused:
            raise UsageError(
                f"'{name}', line {number}: {refused}",
                next_step="write plain lines KEY=VALUE; quote a value that has blanks or signs",
            ) from None
        found[key] = Assignment(key, value, number)
    return tuple(found.values())


def _parse_line(line: str) -> tuple[str, str] | None:
    if _CONTROL.search(line):
        raise _Refused("it holds a control character")
    if _BLANK.fullmatch(line):
        return None
    start = _START.match(line)
    if start is None:
        raise _Refused("it is no assignment KEY=VALUE")
    value, end = _word(line, start.end())
    if not _BLANK.fullmatch(line, end):
        raise _Refused("something follows the value")
    return start[1], value


def _word(line: str, at: int) -> tuple[str, int]:
    """The word that begins at ``at``, unquoted, and where it ends."""
    value: list[str] = []
    begin = at
    while at < len(line) and line[at] not in " \t":
        sign = line[at]
        if plain := _PLAIN.match(line, at):
            value.append(plain[0])
            at = plain.end()
        elif sign == "'":
            end = line.find("'", at + 1)
            if end < 0:
                raise _Refused("a single quote is not closed on this line")
            value.append(line[at + 1 : end])
            at = end + 1
        elif sign == '"':
            text, at = _double_quoted(line, at + 1)
            value.append(text)
        elif sign == "\\":
            if at + 1 == len(line):
                raise _Refused("it ends with a backslash")
            value.append(line[at + 1])
            at += 2
        elif sign in "$`":
            raise _Refused(_EXPANDED.format(f"'{sign}'"))
        elif sign == "~" and (at == begin or line[at - 1] == ":"):
            raise _Refused(_EXPANDED.format("'~'"))
        elif sign in "~#":
            value.append(sign)  # within a word they are ordinary
            at += 1
        else:
            raise _Refused("the value has a sign that means something to a shell: quote the value")
    if at < len(line) and at == begin and not _BLANK.fullmatch(line, at):
        raise _Refused("a blank follows the '='")
    return "".join(value), at


def _double_quoted(line: str, at: int) -> tuple[str, int]:
    """What is between the quotes, and the place after the closing one."""
    value: list[str] = []
    while at < len(line):
        sign = line[at]
        if sign == '"':
            return "".join(value), at + 1
        if sign in "$`":
            raise _Refused(_EXPANDED.format(f"'{sign}'"))
        if sign == "\\" and at + 1 < len(line) and line[at + 1] in '"\\$`':
            at += 1
            sign = line[at]
        value.append(sign)
        at += 1
    raise _Refused("a double quote is not closed on this line")
