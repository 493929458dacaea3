"""The command ``qnnctx``: the same functions as in pytest, without pytest."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx import __version__
from pytest_qnnctx.config import OPTIONS, Option, Settings, resolve
from pytest_qnnctx.errors import InfrastructureError, QnnctxError

if TYPE_CHECKING:
    from pytest_qnnctx.workbench import Workbench

#: Exit status by family: the model's fault, ours (sysexits' EX_TEMPFAIL), the user's.
EXIT_PRODUCT, EXIT_INFRASTRUCTURE, EXIT_USAGE = 1, 75, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0, 1 (product), 2 (usage) or 75 (infrastructure)."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except QnnctxError as error:
        log = getattr(error, "log", "")
        if log and not error.findings:
            print(log.strip(), file=sys.stderr)
        print(f"qnnctx: {error}", file=sys.stderr)
        return _exit_status(error)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away, as `| head` does: nothing to complain about
        return 0


def _exit_status(error: QnnctxError) -> int:
    from pytest_qnnctx.errors import UsageError

    if isinstance(error, InfrastructureError):
        return EXIT_INFRASTRUCTURE
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_PRODUCT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qnnctx", description="Qualcomm HTP context binaries: inspect, build, boards."
    )
    parser.add_argument("--version", action="version", version=f"pytest-qnnctx {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    inspect = commands.add_parser("inspect", help="what a context binary says about itself")
    inspect.add_argument("file", type=Path, metavar="FILE")
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.set_defaults(command=_inspect)

    build = commands.add_parser("build", help="build a model's context binary into the cache")
    build.add_argument("model", type=Path, metavar="MODEL.onnx")
    build.add_argument("--encodings", type=Path, metavar="FILE", help="AIMET encodings")
    build.add_argument("--calibration", type=Path, metavar="FILE", help=".npz or input list")
    build.add_argument("--name", default="", help="name of the binary (default: the file's)")
    build.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=1,3,224,224",
        help="fix a dynamic input's shape; once an input",
    )
    _add_options(build, "--board", "--boards-file", "--qnnctx-toolchain", "--qnnctx-cache-dir")
    build.set_defaults(command=_build)

    boards = commands.add_parser("boards", help="the boards that are known")
    boards.add_argument("action", nargs="?", choices=["list"], default="list")
    _add_options(boards, "--boards-file")
    boards.set_defaults(command=_boards)

    doctor = commands.add_parser("doctor", help="what is installed, and what is missing")
    _add_options(doctor, "--board", "--boards-file", "--qnnctx-toolchain", "--qnnctx-cache-dir")
    doctor.set_defaults(command=_doctor)
    return parser


def _add_options(parser: argparse.ArgumentParser, *flags: str) -> None:
    for option in OPTIONS:
        if option.flag in flags:
            parser.add_argument(
                option.flag, dest=option.name, metavar=option.metavar, help=option.help
            )


def _workbench(arguments: argparse.Namespace) -> Workbench:
    """The session's tools, with plugins from the entry-point group ``qnnctx``."""
    import pluggy

    from pytest_qnnctx import builtin, hookspecs
    from pytest_qnnctx.registry import Registry
    from pytest_qnnctx.workbench import Workbench

    manager = pluggy.PluginManager("pytest")
    manager.add_hookspecs(hookspecs)
    manager.register(builtin)
    manager.load_setuptools_entrypoints("qnnctx")

    def progress(line: str) -> None:
        print(f"qnnctx: {line}", file=sys.stderr, flush=True)

    settings = _settings(arguments)
    return Workbench(settings, Registry(manager.hook, settings), progress)


def _settings(arguments: argparse.Namespace) -> Settings:
    def command_line(option: Option) -> str | bool | None:
        value: str | bool | None = getattr(arguments, option.name, None)
        return value

    return resolve(command_line, lambda option: "", _root())


def _root() -> Path:
    """The project's root, as pytest would find it: where its configuration or .git is."""
    here = Path.cwd()
    marks = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "boards.yaml", ".git")
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in marks):
            return folder
    return here


def _inspect(arguments: argparse.Namespace) -> int:
    from pytest_qnnctx.binary.reader import read_binary
    from pytest_qnnctx.binary.view import to_text

    info = read_binary(arguments.file)
    if arguments.json:
        print(json.dumps(info.to_json(), indent=2, allow_nan=False))
    else:
        print(to_text(info, arguments.file))
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from pytest_qnnctx.model import Model

    workbench = _workbench(arguments)
    model = Model(
        arguments.model,
        name=arguments.name,
        encodings=arguments.encodings,
        calibration=arguments.calibration,
        input_shapes=dict(_shape(text) for text in arguments.shape),
    )
    artifact = workbench.artifact(model, workbench.target)
    print(artifact.path)
    return 0


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    from pytest_qnnctx.errors import UsageError

    name, _, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise UsageError(f"--shape {text} is not of the form INPUT=1,3,224,224")
    return name, shape


def _boards(arguments: argparse.Namespace) -> int:
    workbench = _workbench(arguments)
    inventory = workbench.inventory
    registry = workbench.registry
    rows = [("name", "SoC", "HTP", "VTCM", "transport", "runner", "tags")]
    for board in inventory.boards:
        vtcm = f"{board.target.vtcm_mb} MB" if board.target.vtcm_mb else "unknown"
        target = board.target
        known = board.transport in registry.transports
        transport = board.transport if known else f"{board.transport} (not in this version)"
        place = (transport, board.runner, ",".join(board.tags))
        rows.append((board.name, target.soc, target.htp_arch, vtcm, *place))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip())
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from pytest_qnnctx.doctor import examine

    findings = examine(_workbench(arguments))
    for finding in findings:
        print(f"{'ok      ' if finding.good else 'MISSING '} {finding.what}: {finding.found}")
        if finding.next_step:
            print(f"          {finding.next_step}")
    return 0 if all(finding.good for finding in findings) else EXIT_INFRASTRUCTURE


if __name__ == "__main__":
    sys.exit(main())
