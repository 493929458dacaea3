"""Command lines of the stand-in's tools: argparse's, and the C++ generator's own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass


def parser(tool: str, description: str) -> argparse.ArgumentParser:
    """One whose errors look as the vendor's Python tools' do; no abbreviations."""
    made = argparse.ArgumentParser(
        prog=tool, description=description, allow_abbrev=False, add_help=False
    )
    made.add_argument("-h", "--help", action="help", help="show this help message and exit")
    return made


def add_all(made: argparse.ArgumentParser, flags: Sequence[str], help_text: str = "") -> None:
    """Flags that the stand-in takes and does nothing with; each has one value."""
    for flag in flags:
        made.add_argument(flag, help=help_text or "taken, and not used by the stand-in")


@dataclass(frozen=True)
class CppFlag:
    """A flag of a C++ tool. ``value`` names its value in the help; empty where it has none."""

    name: str
    value: str
    text: str
    required: bool = False


class WrongFlagError(Exception):
    """A flag that the tool does not have, or one without its value."""


def parse_cpp(argv: Sequence[str], flags: Sequence[CppFlag]) -> dict[str, str]:
    """``--flag value`` and ``--flag=value``; a flag without value gets "1".

    Raises WrongFlagError.
    """
    known = {flag.name: flag for flag in flags}
    found: dict[str, str] = {}
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in known:
            raise WrongFlagError(f"Unrecognized option: {name}")
        if known[name].value and not equals:
            if not rest:
                raise WrongFlagError(f"{name} needs a value")
            value = rest.pop(0)
        found[name] = value if known[name].value else "1"
    return found


def cpp_help(tool: str, what: str, flags: Sequence[CppFlag]) -> str:
    """Help in the manner of the SDK's C++ tools: required arguments, then optional ones."""
    lines = ["", "DESCRIPTION:", "------------", what, ""]
    for title, required in (("REQUIRED ARGUMENTS:", True), ("OPTIONAL ARGUMENTS:", False)):
        lines += [title, "-" * len(title)]
        for flag in flags:
            if flag.required == required:
                value = f"<{flag.value}>" if flag.value else ""
                lines += [f"  {flag.name:<32}{value:<12}{flag.text}", ""]
    return "\n".join(lines)


def print_version(tool: str, build_id: str, pid: int) -> None:
    """``qnn-net-run pid:1947023`` and ``QNN SDK v2.13...``: seen of 2.13's qnn-net-run."""
    print(f"{tool} pid:{pid}")
    print(f"QNN SDK v{build_id}")
    sys.stdout.flush()
