"""The process that reads a context binary: with libQnnSystem, and for its option strings.

``python -m pytest_qnnctx.binary.metadata_child LIBRARY FILE``; ``-`` for LIBRARY leaves the
library out. Prints one JSON object a line: ``{"stage": "loaded"}`` once the library is in the
process, then one with the stage ``done`` (``metadata``, ``options``) or ``failed`` (``kind``,
``detail``, ``code``). Whatever the library itself prints goes to stderr. The vendor's code may
crash or hang on a damaged file: then the last line is missing, and the parent draws its conclusion.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from pytest_qnnctx.binary import qnn_system as qnn
from pytest_qnnctx.binary.describe import Malformed, UnknownLayout, describe
from pytest_qnnctx.binary.option_scan import scan_options


class Failed(Exception):
    """The file could not be read; ``kind`` says in which way, ``code`` is the library's."""

    def __init__(self, kind: str, detail: str, code: int | None = None) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.code = kind, detail, code


def read_metadata(library: ctypes.CDLL, file: BinaryIO) -> dict[str, Any]:
    """What ``library`` says of ``file``, as :func:`describe` gives it. Raises Failed."""
    interface = _interface(library)
    handle = ctypes.c_void_p()
    code = qnn.CreateFunction(interface.create)(ctypes.addressof(handle))
    if code != 0:
        raise Failed("load", f"systemContextCreate failed with error {code}", code)
    # A private writable mapping: the pages that are looked at come from the file, and the vendor's
    # function, which takes a pointer to non-const, cannot change it.
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as data:
        window = (ctypes.c_char * len(data)).from_buffer(data)
        info, size = ctypes.c_void_p(), ctypes.c_uint64()
        try:
            code = qnn.GetBinaryInfoFunction(interface.get_binary_info)(
                handle,
                ctypes.addressof(window),
                len(data),
                ctypes.addressof(info),
                ctypes.addressof(size),
            )
            if code != 0 or not info.value:
                raise Failed("rejected", f"systemContextGetBinaryInfo gave error {code}", code)
            return describe(info.value)
        except Malformed as error:
            raise Failed("malformed", str(error)) from None
        except UnknownLayout as error:
            raise Failed("layout", str(error)) from None
        finally:
            del window  # a mapping with a view of it cannot be closed


def _interface(library: ctypes.CDLL) -> Any:
    try:
        get_providers = library.QnnSystemInterface_getProviders
    except AttributeError:
        raise Failed("load", "it has no QnnSystemInterface_getProviders") from None
    get_providers.restype = ctypes.c_uint64
    providers = ctypes.POINTER(ctypes.POINTER(qnn.SystemInterface))()
    count = ctypes.c_uint32()
    code = get_providers(ctypes.byref(providers), ctypes.byref(count))
    if code != 0 or count.value < 1 or not providers or not providers[0]:
        raise Failed("load", f"QnnSystemInterface_getProviders gave error {code}", code)
    interface = providers[0].contents
    if not interface.create or not interface.get_binary_info:
        raise Failed("load", "it offers no systemContextGetBinaryInfo")
    return interface


def main(library: str, path: str, say: Any) -> None:
    """Read ``path`` and ``say`` what was found, line by line."""
    try:
        with Path(path).open("rb") as file:
            metadata = None
            if library != "-":
                loaded = _load(library)
                say({"stage": "loaded"})
                metadata = read_metadata(loaded, file)
            options = scan_options(
                lambda offset, count: os.pread(file.fileno(), count, offset),
                os.fstat(file.fileno()).st_size,
            )
            say({"stage": "done", "metadata": metadata, "options": options})
    except Failed as failed:
        say(
            {"stage": "failed", "kind": failed.kind, "detail": failed.detail, "code": failed.code},
        )


def _load(library: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        raise Failed("load", str(error)) from None


def _own_stdout() -> Any:
    """A function that writes lines to the real stdout, which the library then cannot reach."""
    real = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        real.write(json.dumps(line, allow_nan=False) + "\n")
        real.flush()

    return say


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], _own_stdout())
