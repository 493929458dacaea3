"""pytest's hooks. They register and delegate; what is decided is decided elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_qnnctx import builtin, hookspecs
from pytest_qnnctx.config import OPTIONS, Option, Settings, resolve
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.fixtures import (
    NAMES,
    WORKBENCH,
    _qnnctx_lease,
    acceptance,
    board,
    context_binary,
    qnn_model,
    target,
)
from pytest_qnnctx.registry import Registry
from pytest_qnnctx.workbench import Workbench

__all__ = ["_qnnctx_lease", "acceptance", "board", "context_binary", "qnn_model", "target"]

#: Markers that pytest knows without registering them.
_PYTESTS_OWN = frozenset(
    {"parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings"}
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each option on the command line, with its twin in the ini file."""
    group = parser.getgroup("qnnctx", "Qualcomm HTP context binaries (pytest-qnnctx)")
    for option in OPTIONS:
        text = f"{option.help} [{option.variable}]"
        if option.metavar:
            group.addoption(option.flag, dest=option.name, metavar=option.metavar, help=text)
        else:
            group.addoption(option.flag, dest=option.name, action="store_true", help=text)
        parser.addini(option.name, option.help)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """What others may add, and first of all what comes with the package: a later one wins."""
    pluginmanager.add_hookspecs(hookspecs)
    pluginmanager.register(builtin, "qnnctx-builtin")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settings, markers, and the workbench, which opens nothing yet."""
    from pytest_qnnctx.markers import marker_lines

    try:
        settings = _settings(config)
        registry = Registry(config.hook, settings)
        for line in marker_lines(registry):
            config.addinivalue_line("markers", line)
        config.stash[WORKBENCH] = workbench = Workbench(settings, registry, _Teller(config))
        if settings.board is not None:
            workbench.check()
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if not hasattr(config, "workerinput") and (settings.board or settings.json):
        from pytest_qnnctx.account import Account
        from pytest_qnnctx.report.json_report import check_writable

        try:
            check_writable(settings.json)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
        config.pluginmanager.register(Account(workbench), "qnnctx-account")


def _settings(config: pytest.Config) -> Settings:
    def command_line(option: Option) -> str | bool | None:
        value: str | bool | None = config.getoption(option.name)
        return value

    def ini(option: Option) -> str:
        return str(config.getini(option.name) or "")

    return resolve(command_line, ini, config.rootpath, invoked_from=config.invocation_params.dir)


class _Teller:
    """Progress of long builds: a line on the terminal, in spite of pytest's capturing."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(self, line: str) -> None:
        import sys

        capture = self._config.pluginmanager.getplugin("capturemanager")
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        text = f"qnnctx: {line}"
        with capture.global_and_fixture_disabled() if capture else _nothing():
            if terminal is not None and not hasattr(self._config, "workerinput"):
                terminal.ensure_newline()
                terminal.write_line(text)
                terminal.flush()
            else:
                print(text, file=sys.stderr, flush=True)


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    """Which board, which target, which toolchain; nothing where the plugin is not used."""
    workbench = config.stash[WORKBENCH]
    if workbench.settings.board is None:
        return None
    from pytest_qnnctx.heading import header_lines

    return header_lines(workbench)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the markers before anything runs; a gate's marker brings the acceptance with it."""
    from pytest_qnnctx.markers import MODEL_MARKER, asks_for_gates, check_markers

    registry = config.stash[WORKBENCH].registry
    gates = frozenset(registry.gates)
    lines = config.getini("markers")
    registered = {line.partition(":")[0].partition("(")[0].strip() for line in lines}
    registered |= _PYTESTS_OWN
    mistakes = []
    marks = gates | {MODEL_MARKER}
    concerned = [
        item
        for item in items
        if not NAMES.isdisjoint(getattr(item, "fixturenames", ()))
        or any(mark.name in marks for mark in item.iter_markers())
    ]
    for item in concerned:
        try:
            check_markers(item, registry, gates, registered)
        except UsageError as error:
            mistakes.append(str(error))
    if mistakes:
        raise pytest.UsageError("\n".join(mistakes))
    for item in concerned:
        names: list[str] = getattr(item, "fixturenames", [])
        if asks_for_gates(item, gates) and "acceptance" not in names:
            # Not in place: the tests of one parametrized function share the list.
            item.fixturenames = [*names, "acceptance"]  # type: ignore[attr-defined]
    if any(NAMES.intersection(getattr(item, "fixturenames", ())) for item in concerned):
        from pytest_qnnctx.outcomes import watch

        watch(config)
