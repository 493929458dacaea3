"""Where libQnnSystem is, the library that reads the metadata of a context binary."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_qnnctx.errors import UsageError

FILE_NAME = "libQnnSystem.so"
#: Names the library; ``none`` reads binaries without one (architecture, SoC and versions only).
VARIABLE = "QNNCTX_QNN_SYSTEM_LIB"
SDK_VARIABLE = "QNN_SDK_ROOT"
WHEEL = "onnxruntime_qnn"

# The SDK's own names of its library directories.
_SDK_DIRECTORIES = {
    "x86_64": ("x86_64-linux-clang",),
    "aarch64": ("aarch64-oe-linux-gcc11.2", "aarch64-ubuntu-gcc9.4", "aarch64-oe-linux-gcc9.3"),
}


@dataclass(frozen=True)
class SystemLibrary:
    """The library found, or None; ``reason`` says where it comes from or why there is none."""

    path: Path | None
    reason: str


def find_system_library() -> Path | None:
    """The library that :func:`locate_system_library` finds, or None."""
    return locate_system_library().path


def locate_system_library(environ: Mapping[str, str] | None = None) -> SystemLibrary:
    """Find libQnnSystem without loading it and without importing anything of its wheel.

    In this order: the environment variable QNNCTX_QNN_SYSTEM_LIB, ``$QNN_SDK_ROOT``, the installed
    ``onnxruntime-qnn``, the directories of the loader. Raises UsageError where
    QNNCTX_QNN_SYSTEM_LIB names no file: the next best is not what was asked for.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get(VARIABLE):
        return _named(named)
    places = [*_sdk_places(environ), *_wheel_places(), *_loader_places(environ)]
    for source, path in places:
        if path.is_file():
            return SystemLibrary(path, source)
    looked = ", ".join(dict.fromkeys(source for source, _ in places))
    missing = "" if environ.get(SDK_VARIABLE) else f"; {SDK_VARIABLE} is not set"
    return SystemLibrary(None, f"no {FILE_NAME} was found (looked in: {looked}{missing})")


def _named(named: str) -> SystemLibrary:
    if named == "none":
        return SystemLibrary(None, f"{VARIABLE} is 'none': read without {FILE_NAME}")
    path = Path(named)
    if not path.is_file():
        raise UsageError(
            f"The environment variable {VARIABLE} names {named}, which is not a file.",
            next_step=f"Give the path of a {FILE_NAME}, or unset the variable.",
        )
    return SystemLibrary(path.absolute(), VARIABLE)


def _sdk_places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if root := environ.get(SDK_VARIABLE):
        for directory in _SDK_DIRECTORIES.get(platform.machine(), ()):
            yield f"${SDK_VARIABLE}", Path(root, "lib", directory, FILE_NAME)


def _wheel_places() -> Iterator[tuple[str, Path]]:
    try:
        spec = importlib.util.find_spec(WHEEL)
    except (ImportError, ValueError):
        spec = None
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        yield "the installed onnxruntime-qnn", Path(directory, FILE_NAME)


def _loader_places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for directory in filter(None, environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        yield "LD_LIBRARY_PATH", Path(directory, FILE_NAME)
    triplet = f"{platform.machine()}-linux-gnu"
    for directory in ("/usr/local/lib", f"/usr/lib/{triplet}", "/usr/lib64", "/usr/lib", "/lib"):
        yield "the system's library directories", Path(directory, FILE_NAME)
