"""Memory of the own process, read so that a wild pointer gives None and no crash."""

from __future__ import annotations

import ctypes
import os
from typing import TypeVar

_PAGE = 4096
_LOWEST_ADDRESS = 65536  # nothing is mapped below it
_HIGHEST_ADDRESS = 2**63 - 1
_OWN_MEMORY = "/proc/self/mem"

Form = TypeVar("Form", bound=ctypes.Structure)


def bytes_at(address: int | None, count: int) -> bytes | None:
    """``count`` bytes at ``address``, None where not all of them are mapped.

    Asks the kernel for them (Linux); elsewhere they are read directly, and a wild pointer crashes.
    """
    if not address or not _LOWEST_ADDRESS <= address <= _HIGHEST_ADDRESS - count:
        return None
    try:
        memory = os.open(_OWN_MEMORY, os.O_RDONLY)
    except FileNotFoundError:
        return ctypes.string_at(address, count)
    try:
        found = os.pread(memory, count, address)
    except OSError:
        return None
    finally:
        os.close(memory)
    return found if len(found) == count else None


def structure_at(form: type[Form], address: int | None) -> Form | None:
    """A copy of the ``form`` at ``address``; None where not all of it is mapped."""
    raw = bytes_at(address, ctypes.sizeof(form))
    return None if raw is None else form.from_buffer_copy(raw)


def text_at(address: int | None, most: int) -> bytes | None:
    """The bytes before the first NUL at ``address``; None where it is not mapped.

    Of a text without an end ``most`` bytes or a few more are given.
    """
    text = b""
    while address and len(text) <= most:
        part = bytes_at(address, _PAGE - address % _PAGE)
        if part is None:
            return None
        before, end, _ = part.partition(b"\0")
        text += before
        if end:
            return text
        address += len(part)
    return text if address else None
