"""Git LFS pointers: the small text that lies where a file was not pulled."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_qnnctx.errors import InfrastructureError

#: The specification keeps a pointer below this size (bytes): git-lfs, docs/spec.md.
LARGEST_POINTER_BYTES = 1024
_BEGINNING = b"version https://git-lfs.github.com/spec/"
_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)

PULL = "git lfs pull (in CI: let the checkout fetch LFS files)"


def is_pointer(content: bytes) -> bool:
    """Whether ``content``, a file's beginning or all of it, is a pointer's."""
    return content.startswith(_BEGINNING)


def pointed_sha256(path: Path) -> str | None:
    """The sha256 of the content that ``path`` points to; None where ``path`` is no pointer.

    Empty for a pointer that names no sha256. Raises ``OSError`` where it cannot be read.
    """
    if path.stat().st_size >= LARGEST_POINTER_BYTES:
        return None
    content = path.read_bytes()
    if not is_pointer(content):
        return None
    found = _OID.search(content)
    return found.group(1).decode() if found else ""


def refuse_pointer(path: Path, what: str) -> None:
    """Raise InfrastructureError where ``path`` (the ``what`` of a model) is a pointer.

    A path that cannot be read is left to whoever reads it next.
    """
    try:
        pointed = pointed_sha256(path)
    except OSError:
        return
    if pointed is not None:
        raise InfrastructureError(
            f"the {what} {path} is a Git LFS pointer: its content was not pulled", next_step=PULL
        )
