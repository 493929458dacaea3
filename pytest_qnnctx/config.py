"""Settings: what the command line, the environment and the ini file say, resolved once.

Each option has the same name everywhere: ``--qnnctx-cache-dir`` on the command line,
``QNNCTX_CACHE_DIR`` in the environment, ``qnnctx_cache_dir`` in the ini file. The command line wins
over the environment, and the environment over the ini file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_qnnctx.errors import UsageError

#: The manifest's name at the project's root.
MANIFEST = "qnnctx.lock"
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass(frozen=True)
class Option:
    """One setting. ``metavar`` is empty for a switch."""

    flag: str
    help: str
    metavar: str = ""

    @property
    def name(self) -> str:
        """Its name in the ini file and as an attribute: ``qnnctx_cache_dir``, ``qnnctx_board``."""
        bare = self.flag.removeprefix("--").replace("-", "_")
        return bare if bare.startswith("qnnctx_") else f"qnnctx_{bare}"

    @property
    def variable(self) -> str:
        """Its environment variable: ``QNNCTX_CACHE_DIR``, ``QNNCTX_BOARD``."""
        return self.name.upper()


OPTIONS: tuple[Option, ...] = (
    Option("--board", "board to judge on: a name, a SoC (qcs6490), a tag, or sim", "SELECTOR"),
    Option("--boards-file", "the boards' inventory (default: boards.yaml at the root)", "FILE"),
    Option(
        "--qnnctx-toolchain",
        "how to get context binaries (default: auto, the first that is installed)",
        "NAME",
    ),
    Option(
        "--qnnctx-cache-dir",
        "where built binaries and references are kept (default: .qnnctx-cache at the root)",
        "DIR",
    ),
    Option(
        "--qnnctx-manifest",
        "the manifest that pins binaries (default: qnnctx.lock at the root, where it exists)",
        "FILE",
    ),
    Option(
        "--qnnctx-build-host",
        "SSH alias or user@host of the machine with the QAIRT SDK (default: QC_BUILD_HOST)",
        "HOST",
    ),
    Option(
        "--qnnctx-float-fallback",
        "let the QAIRT quantizer leave ops in float; recorded, and named in the report",
    ),
    Option("--qnnctx-json", "write the report as JSON to this file", "FILE"),
    Option(
        "--qnnctx-lease-timeout", "seconds to wait for a board that is in use (default: 600)", "S"
    ),
    Option(
        "--qnnctx-require-hardware",
        "refuse times that were taken on the emulator",
    ),
    Option("--qnnctx-fresh", "run again on the emulator what is already recorded in the cache"),
)


@dataclass(frozen=True)
class Settings:
    """All settings. ``origins`` says for each set option where it came from."""

    root: Path
    board: str | None = None
    boards_file: Path | None = None
    toolchain: str = "auto"
    cache_dir: Path = Path(".qnnctx-cache")
    manifest: Path | None = None
    build_host: str | None = None
    float_fallback: bool = False
    json: Path | None = None
    lease_timeout_s: float = 600.0
    require_hardware: bool = False
    fresh: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)


def resolve(
    command_line: Callable[[Option], str | bool | None],
    ini: Callable[[Option], str],
    root: Path,
    *,
    invoked_from: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from the three sources.

    Paths on the command line and in the environment are relative to ``invoked_from``, those in the
    ini file to ``root``. Raises UsageError that names option and source where a value is no good.
    """
    environ = os.environ if environ is None else environ
    here = invoked_from or Path.cwd()
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    bases: dict[str, Path] = {}
    for option in OPTIONS:
        given = command_line(option)
        key = option.name.removeprefix("qnnctx_")
        if given not in (None, False):
            values[key], origins[key], bases[key] = str(given), option.flag, here
        elif environ.get(option.variable, ""):
            values[key], bases[key] = environ[option.variable], here
            origins[key] = f"environment variable {option.variable}"
        elif text := ini(option):
            values[key], origins[key], bases[key] = text, f"ini option {option.name}", root

    def path(key: str) -> Path | None:
        if key not in values:
            return None
        if not values[key]:
            raise UsageError(f"{origins[key]} is empty", next_step="give it a path")
        try:
            return bases[key] / Path(values[key]).expanduser()
        except RuntimeError as error:
            raise UsageError(f"{origins[key]}: '{values[key]}': {error}") from error

    def switch(key: str) -> bool:
        text = values.get(key, "").lower()
        if text not in _TRUE | _FALSE:
            raise UsageError(f"{origins[key]}: '{text}' is neither yes nor no")
        return text in _TRUE

    boards_file = path("boards_file")
    if boards_file is None:
        usual = (folder / "boards.yaml" for folder in (root, here))
        boards_file = next((file for file in usual if file.is_file()), None)
    return Settings(
        root=root,
        board=values.get("board"),
        boards_file=boards_file,
        toolchain=values.get("toolchain", "auto"),
        cache_dir=path("cache_dir") or root / ".qnnctx-cache",
        manifest=path("manifest") or _existing(root / MANIFEST),
        build_host=values.get("build_host"),
        float_fallback=switch("float_fallback"),
        json=path("json"),
        lease_timeout_s=_seconds(values, origins),
        require_hardware=switch("require_hardware"),
        fresh=switch("fresh"),
        origins=origins,
    )


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _seconds(values: Mapping[str, str], origins: Mapping[str, str]) -> float:
    text = values.get("lease_timeout", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"{origins['lease_timeout']}: '{text}' is not a number of seconds")
    return seconds
