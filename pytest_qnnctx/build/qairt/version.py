"""Which version an SDK is: from ``sdk.yaml``, or else from where it lies, or else from a tool."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: major.minor.patch and a build number, as the binaries carry it: 2.37.1.250807093845.
_FULL = re.compile(r"(?<![\d.])v?(\d+\.\d+\.\d+\.\d{6,})")
_SHORT = re.compile(r"(?<![\d.])v?(\d+\.\d+\.\d+)(?![\d.])")
_FIELD = re.compile(r"""^\s*(\w+)\s*:\s*["']?v?([\w.]+)""")


def version_from_yaml(lines: Sequence[str]) -> str | None:
    """From ``sdk.yaml``: ``version: 2.48.0`` with ``build_id: 260626120635``, or both in one.

    The fields ``product``, ``version`` and ``build_id`` are what public copies of the file show.
    """
    fields = {m[1]: m[2] for line in lines if (m := _FIELD.match(line))}
    version = fields.get("version", "")
    if not re.fullmatch(r"\d+\.\d+(\.\d+)*", version):
        return None
    build = fields.get("build_id", "").split("_")[0]
    if len(version.split(".")) <= 3 and build.isdigit():
        return f"{version}.{build}"
    return version


def version_from_text(text: str) -> str | None:
    """The first full version in ``text`` (a path, or what ``--version`` prints), or a short one."""
    found = _FULL.search(text) or _SHORT.search(text)
    return found[1] if found else None


def version_tuple(version: str) -> tuple[int, ...]:
    """For comparing: "2.37.1.2508" -> (2, 37, 1, 2508); parts that are no number end it."""
    parts: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)
