"""Entry of every tool of the stand-in SDK: ``standin_tools.py TOOL ROOT MACHINE VERSION ARGS...``.

It checks the environment as the real tools depend on it, plays the quirks that any tool can have,
and hands over. Heavy modules are imported by the tools, and only when there is work.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from standin_quick_onnx import use_quick_onnx
from standin_quirks import Quirks
from standin_releases import Release, release

HOST = "x86_64-linux-clang"
RUNS_FILE = "runs.jsonl"
_LOOK_AT_NO_VALUES = frozenset({"qairt-converter", "qnn-context-binary-generator"})


@dataclass(frozen=True)
class Tool:
    """What a tool knows of itself. ``libraries`` is LD_LIBRARY_PATH as its caller set it."""

    name: str
    root: Path
    machine: str
    release: Release
    quirks: Quirks
    argv: tuple[str, ...]
    libraries: tuple[str, ...]

    @property
    def on_board(self) -> bool:
        return self.machine != HOST

    def die_if_told(self) -> None:
        """Called by a tool in the middle of its work."""
        number = self.quirks.of("signal", self.name)
        if number:
            end_by_signal(int(number))

    def has_quirk(self, name: str) -> bool:
        return self.quirks.on(name, self.name)


def end_by_signal(number: int) -> None:
    """End as a process does that this signal kills, without leaving a core file."""
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(60)


def main() -> int:
    """Run the tool and return its exit status."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    name, root, machine, version, *argv = sys.argv[1:]
    libraries = tuple(p for p in os.environ.pop("STANDIN_LIBRARIES", "").split(":") if p)
    python_path = os.environ.pop("STANDIN_PYTHONPATH", "").split(":")
    here = Path(root)
    tool = Tool(name, here, machine, release(version), Quirks(here), tuple(argv), libraries)
    run = _entry(name)
    if not any(arg in ("--help", "-h", "--version") for arg in argv):
        _record(tool)
    code = _environment_fault(tool, python_path)
    if code is None:
        code = _quirk_of_any_tool(tool)
    if code is not None:
        return code
    if name in _LOOK_AT_NO_VALUES:
        use_quick_onnx()
    return run(tool)


def _entry(name: str) -> Callable[[Tool], int]:
    if name == "qairt-converter":
        from standin_converter import run
    elif name == "qairt-quantizer":
        from standin_quantizer import run
    elif name == "qairt-dlc-info":
        from standin_dlc_info import run
    elif name == "qnn-context-binary-generator":
        from standin_generator import run
    else:
        raise SystemExit(f"the stand-in SDK has no {name}")
    return run


def _record(tool: Tool) -> None:
    run = {"tool": tool.name, "argv": tool.argv, "cwd": str(Path.cwd()), "pid": os.getpid()}
    line = (json.dumps(run) + "\n").encode()
    file = os.open(tool.root / RUNS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line)  # one write: lines of tools that run at once do not mix
    os.close(file)


def _environment_fault(tool: Tool, python_path: list[str]) -> int | None:
    """What the host's tools do where ``envsetup.sh`` was not sourced, or not last."""
    if tool.on_board:
        return None
    own = str(tool.root / "lib" / HOST)
    places = [os.path.realpath(path) for path in tool.libraries]
    if tool.name.startswith("qairt-") and str(tool.root / "lib" / "python") not in python_path:
        # Seen where PYTHONPATH lacks the SDK's lib/python (a LiteRT document).
        print("Traceback (most recent call last):", file=sys.stderr)
        print(f'  File "{tool.root}/bin/{HOST}/{tool.name}", line 12, in <module>', file=sys.stderr)
        print("ModuleNotFoundError: No module named 'qti'", file=sys.stderr)
        return 1
    real = os.path.realpath(own)
    asked_for_help = any(arg in ("--help", "-h", "--version") for arg in tool.argv)
    if real in places and places[0] != real and not asked_for_help:
        # A library path from elsewhere before the SDK's: ends well, makes nothing, says nothing.
        return 0
    return None


def _quirk_of_any_tool(tool: Tool) -> int | None:
    if any(arg in ("--help", "-h", "--version") for arg in tool.argv):
        return None
    if wait := tool.quirks.of("sleep_s", tool.name):
        time.sleep(float(wait))
    if tool.has_quirk("exit0_nothing"):
        return 0
    if tool.has_quirk("disk_full"):
        print("OSError: [Errno 28] No space left on device: '/tmp/standin'", file=sys.stderr)
        return 1
    if tool.has_quirk("licence"):
        print("[ ERROR ] License check failed: no valid license was found", file=sys.stderr)
        return 1
    if tool.has_quirk("missing_libcxx"):
        print(
            "Cannot Open QNN library libQnnHtp.so, with error: libc++.so.1: cannot open shared "
            "object file: No such file or directory",
            file=sys.stderr,
        )
        return 1
    if tool.has_quirk("not_executable"):
        path = f"{tool.root}/bin/{tool.machine}/{tool.name}"
        print(
            f"bash: line 1: {path}: cannot execute binary file: Exec format error", file=sys.stderr
        )
        return 126
    return None


if __name__ == "__main__":
    sys.exit(main())
