"""The command ``qnnctx``: the same functions as in pytest, without pytest."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_qnnctx import __version__
from pytest_qnnctx.cli_build import add_build
from pytest_qnnctx.cli_common import (
    EXIT_INFRASTRUCTURE,
    EXIT_USAGE,
    add_options,
    exit_status,
    open_workbench,
)
from pytest_qnnctx.errors import QnnctxError


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
        return exit_status(error)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away, as `| head` does: nothing to complain about
        return 0


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

    add_build(commands)

    boards = commands.add_parser("boards", help="the boards that are known")
    boards.add_argument("action", nargs="?", choices=["list"], default="list")
    add_options(boards, "--boards-file")
    boards.set_defaults(command=_boards)

    doctor = commands.add_parser("doctor", help="what is installed, and what is missing")
    add_options(
        doctor,
        *("--board", "--boards-file", "--qnnctx-toolchain", "--qnnctx-cache-dir"),
        *("--qnnctx-manifest", "--qnnctx-build-host"),
    )
    doctor.set_defaults(command=_doctor)
    return parser


def _inspect(arguments: argparse.Namespace) -> int:
    from pytest_qnnctx.binary.reader import read_binary
    from pytest_qnnctx.binary.view import to_text

    info = read_binary(arguments.file)
    if arguments.json:
        print(json.dumps(info.to_json(), indent=2, allow_nan=False))
    else:
        print(to_text(info, arguments.file))
    return 0


def _boards(arguments: argparse.Namespace) -> int:
    workbench = open_workbench(arguments)
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
    from pytest_qnnctx.doctor_report import State, report

    examined = examine(open_workbench(arguments))
    print(report(examined))
    states = {one.state for one in examined}
    if State.WRONG in states:
        return EXIT_USAGE
    return EXIT_INFRASTRUCTURE if State.MISSING in states else 0


if __name__ == "__main__":
    sys.exit(main())
