"""The text of the SSH configuration: the user's file, the system's, and what they include."""

from __future__ import annotations

import shlex
from pathlib import Path

from pytest_qnnctx.errors import UsageError

_USER = Path("~/.ssh/config")
_SYSTEM = Path("/etc/ssh/ssh_config")
_EVERY_HOST = "Host *"
_MAX_DEPTH = 16


def read_ssh_config(config_file: Path | None) -> str:
    """``config_file``, or else the user's configuration followed by the system's.

    Included files stand in the place of their Include line. Raises UsageError where
    ``config_file`` does not exist, and where one is not readable.
    """
    if config_file is not None:
        return "\n".join(_read(config_file, _USER.parent))
    lines: list[str] = []
    for path in (_USER, _SYSTEM):
        if _home_path(path).is_file():
            lines += [*_read(path, path.parent), _EVERY_HOST]
    return "\n".join(lines)


def _read(path: Path, folder: Path, *, block: str = _EVERY_HOST, depth: int = 0) -> list[str]:
    """The lines of ``path``; patterns of files to include are relative to ``folder``.

    ``block`` is the Host or Match line that holds where the file begins. An included file does not
    end the block that includes it, so that line is repeated after it.
    """
    lines: list[str] = []
    for line in _text(path).splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() in ("host", "match"):
            block = line
        if keyword.lower() != "include":
            lines.append(line)
            continue
        if depth >= _MAX_DEPTH:
            raise UsageError(f"'{path}' includes itself", next_step="correct its Include lines")
        for included in _included(path, folder, rest):
            lines += [*_read(included, folder, block=block, depth=depth + 1), block]
    return lines


def _included(path: Path, folder: Path, patterns: str) -> list[Path]:
    try:
        words = shlex.split(patterns)
    except ValueError as error:
        raise UsageError(
            f"the SSH configuration '{path}' has an Include line that is no good: {error}",
            next_step="correct it",
        ) from error
    found: list[Path] = []
    for word in words:
        whole = _home_path(folder) / _home_path(Path(word))
        matches = Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))
        found += sorted(match for match in matches if match.is_file())
    return found


def _text(path: Path) -> str:
    try:
        return _home_path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the SSH configuration '{path}' cannot be read: {reason}",
            next_step="correct the path, or the file",
        ) from error


def _home_path(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # nobody's home
        return path
