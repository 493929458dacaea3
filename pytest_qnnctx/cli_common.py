"""What the subcommands of ``qnnctx`` share: exit statuses, options, settings, the workbench."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.config import MANIFEST, OPTIONS, Option, Settings, resolve
from pytest_qnnctx.errors import InfrastructureError, QnnctxError, UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.workbench import Workbench

#: Exit status by family: the model's fault, ours (sysexits' EX_TEMPFAIL), the user's.
EXIT_PRODUCT, EXIT_INFRASTRUCTURE, EXIT_USAGE = 1, 75, 2


def exit_status(error: QnnctxError) -> int:
    """The status of the family that ``error`` belongs to."""
    if isinstance(error, InfrastructureError):
        return EXIT_INFRASTRUCTURE
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_PRODUCT


def add_options(parser: argparse.ArgumentParser, *flags: str) -> None:
    """Add the settings' options that ``flags`` names; one without a metavar is a switch."""
    for option in OPTIONS:
        if option.flag in flags:
            how: dict[str, Any] = (
                {"metavar": option.metavar} if option.metavar else {"action": "store_true"}
            )
            parser.add_argument(option.flag, dest=option.name, help=option.help, **how)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings from the command line and the environment. Raises UsageError."""

    def command_line(option: Option) -> str | bool | None:
        value: str | bool | None = getattr(arguments, option.name, None)
        return value

    return resolve(command_line, lambda option: "", _root())


def say(line: str) -> None:
    """One line on stderr: what is worth knowing, and not the command's result."""
    print(f"qnnctx: {line}", file=sys.stderr, flush=True)


def open_workbench(arguments: argparse.Namespace, settings: Settings | None = None) -> Workbench:
    """The session's tools, with plugins from the entry-point group ``qnnctx``."""
    import pluggy

    from pytest_qnnctx import builtin, hookspecs
    from pytest_qnnctx.registry import Registry
    from pytest_qnnctx.workbench import Workbench

    manager = pluggy.PluginManager("pytest")
    manager.add_hookspecs(hookspecs)
    manager.register(builtin)
    manager.load_setuptools_entrypoints("qnnctx")
    settings = settings_of(arguments) if settings is None else settings
    return Workbench(settings, Registry(manager.hook, settings), say)


def _root() -> Path:
    """The project's root, as pytest would find it: where its configuration or .git is."""
    here = Path.cwd()
    marks = (
        *("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "boards.yaml", ".git"),
        MANIFEST,
    )
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in marks):
            return folder
    return here
