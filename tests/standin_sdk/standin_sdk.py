"""A stand-in for Qualcomm's SDK, laid out as the real one, for tests.

Nothing of the vendor's is in it. Its tools take the flags of the real ones, print lines of the form
that public logs show, fail as they are reported to fail, and do real work where they can: a context
binary that comes out was compiled by Qualcomm's own compiler from ``onnxruntime-qnn``.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from standin_library import make_model_library
from standin_quirks import QUIRKS_FILE, known_quirks
from standin_releases import RELEASES, release

__all__ = ["VERSIONS", "make_model_library", "make_sdk", "runs", "set_quirks"]

VERSIONS = tuple(RELEASES)
DEFAULT_VERSION = "2.37.1.250807093845"
HOST, BOARD = "x86_64-linux-clang", "aarch64-oe-linux-gcc11.2"
HOST_TOOLS = (
    "qairt-converter",
    "qairt-quantizer",
    "qairt-dlc-info",
    "qnn-context-binary-generator",
)
BOARD_TOOLS = ("qnn-context-binary-generator",)
#: No libQnnSystem.so for the host: the real one reads binaries, a text would only stand in the way
#: of the one in ``onnxruntime-qnn``.
HOST_LIBRARIES = (
    "libQnnHtp.so",
    "libQnnModelDlc.so",
    "libQnnHtpNetRunExtensions.so",
    "libHtpPrepare.so",
)
BOARD_LIBRARIES = (
    "libQnnHtp.so",
    "libQnnHtpPrepare.so",
    "libQnnHtpNetRunExtensions.so",
    "libQnnSystem.so",
)
_HERE = Path(__file__).resolve().parent
_PROJECT = _HERE.parent.parent
RUNS_FILE = "runs.jsonl"


def make_sdk(
    where: Path,
    version: str = DEFAULT_VERSION,
    *,
    archs: Iterable[str] = ("v68", "v73"),
    quirks: Mapping[str, Any] | Iterable[str] = (),
    without: Iterable[str] = (),
) -> Path:
    """Write an SDK of ``version`` to the directory ``where`` and return it.

    ``archs`` are the Hexagon versions that it has skels for. ``quirks`` are names of
    :mod:`standin_quirks` (a mapping gives them values); :func:`set_quirks` changes them later.
    ``without`` names what is to be missing: a path below the root, or a file's bare name.
    """
    root = Path(where).absolute()
    acting = release(version)
    for tools, machine in ((HOST_TOOLS, HOST), (BOARD_TOOLS, BOARD)):
        for tool in tools:
            _executable(root / "bin" / machine / tool, _launcher(root, tool, machine, version))
    _write(root / "bin" / "envsetup.sh", _ENVSETUP)
    for names, machine in ((HOST_LIBRARIES, HOST), (BOARD_LIBRARIES, BOARD)):
        for name in names:
            _library(root / "lib" / machine / name, acting.build_id)
    for arch in archs:
        name = f"libQnnHtp{arch.upper()}Skel.so"
        _library(root / f"lib/hexagon-{arch}/unsigned" / name, acting.build_id)
    _write(root / "lib" / "python" / "qti" / "__init__.py", "")
    _write(
        root / "sdk.yaml",
        f"product: QAIRT\nversion: {acting.yaml_version}\nbuild_id: {acting.yaml_build}\n",
    )
    for name in without:
        _remove(root, name)
    set_quirks(root, quirks)
    return root


def set_quirks(sdk: Path, quirks: Mapping[str, Any] | Iterable[str] = (), **more: Any) -> None:
    """Replace the SDK's quirks: names that are simply on, or names with values."""
    values = dict(quirks) if isinstance(quirks, Mapping) else dict.fromkeys(quirks, True)
    values.update(more)
    if unknown := sorted(set(values) - known_quirks()):
        raise ValueError(f"no such quirk of the stand-in SDK: {', '.join(unknown)}")
    text = json.dumps(values, indent=1, default=list)
    new = sdk / (QUIRKS_FILE + ".new")
    new.write_text(text + "\n")
    new.replace(sdk / QUIRKS_FILE)


def runs(sdk: Path, tool: str = "") -> list[dict[str, Any]]:
    """Every run of a tool of this SDK that did work (no ``--help``), oldest first.

    Each has ``tool``, ``argv``, ``cwd`` and ``pid``.
    """
    path = sdk / RUNS_FILE
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [run for run in found if tool in ("", run["tool"])]


def _launcher(root: Path, tool: str, machine: str, version: str) -> str:
    """A shell script that becomes Python: signals, exit codes and the process id are the tool's."""
    python = shlex.join([sys.executable, "-P", str(_HERE / "standin_tools.py")])
    given = shlex.join([tool, str(root), machine, version])
    return f"""\
#!/bin/sh
STANDIN_PYTHONPATH=$PYTHONPATH
PYTHONPATH={shlex.quote(f"{_PROJECT}:{_HERE}")}
STANDIN_LIBRARIES=$LD_LIBRARY_PATH
unset LD_LIBRARY_PATH
export PYTHONPATH STANDIN_PYTHONPATH STANDIN_LIBRARIES
exec {python} {given} "$@"
"""


def _library(path: Path, build_id: str) -> None:
    """A text with the build id in it, as the real library has among its strings."""
    _write(path, f"stand-in for {path.name}\nv{build_id}\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _executable(path: Path, text: str) -> None:
    _write(path, text)
    path.chmod(0o755)


def _remove(root: Path, name: str) -> None:
    found = [root / name] if (root / name).exists() else sorted(root.rglob(name))
    if not found:
        raise ValueError(f"the stand-in SDK has no {name} that could be missing")
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


# Public copies of the real file: bash only, refuses to be executed, sets these variables, puts the
# SDK's directories first, and says so.
_ENVSETUP = r"""#!/bin/bash
if [ -z "${BASH_VERSION:-}" ]; then
  echo "[ERROR] This file should be run with 'source' in bash"
  return 1 2>/dev/null || exit 1
fi
if [[ "${BASH_SOURCE[0]}" -ef "$0" ]]; then
  echo "[ERROR] This file should be run with 'source'"
  exit 1
fi
_standin_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
_standin_quirk() { grep -q "\"$1\": *[^fn ]" "$_standin_root/quirks.json" 2>/dev/null; }
if _standin_quirk envsetup_exits; then exit 1; fi
if _standin_quirk envsetup_fails; then
  echo "[ERROR] envsetup.sh: the SDK is not installed completely"
  return 1
fi
export QNN_SDK_ROOT="$_standin_root" QAIRT_SDK_ROOT="$_standin_root"
_standin_libs="$_standin_root/lib/x86_64-linux-clang"
if ! _standin_quirk envsetup_leaves_path; then
  export PATH="$_standin_root/bin/x86_64-linux-clang:$PATH"
fi
export PYTHONPATH="$_standin_root/lib/python${PYTHONPATH:+:$PYTHONPATH}"
if _standin_quirk envsetup_appends && [ -n "${LD_LIBRARY_PATH:-}" ]; then
  export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$_standin_libs"
else
  export LD_LIBRARY_PATH="$_standin_libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
if _standin_quirk cd; then cd "$_standin_root/bin" || return 1; fi
echo "[INFO] AISW SDK environment set"
echo "[INFO] QNN_SDK_ROOT: $QNN_SDK_ROOT"
echo "[INFO] SNPE_ROOT: $QNN_SDK_ROOT"
unset -f _standin_quirk
unset _standin_root _standin_libs
"""
