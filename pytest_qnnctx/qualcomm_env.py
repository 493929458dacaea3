"""``.qualcomm-env``: where this machine's SDK, build host and boards are.

Lines ``KEY=VALUE`` in shell style, in the project's root or else in the home directory; a variable
of the environment wins. The file is parsed and never executed. It counts when it holds
``QC_SETUP_VERSION``; an empty value is legitimate until something needs it
(:meth:`QualcommEnv.need`).

No message shows a value or a line of the file: what somebody wrote there by mistake may be secret.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.shell_assignments import Assignment, parse_assignments

NAME = ".qualcomm-env"
VERSION = 1
#: Keys and what they mean, as said where one is missed.
KEYS: Mapping[str, str] = {
    "QC_SETUP_VERSION": "the version of the setup that wrote the file",
    "QC_TOPOLOGY": "A all in one, B remote build host, C cloud VM, D no board yet",
    "QC_BUILD_HOST": "SSH alias or user@host of the machine with the SDK; empty: this one",
    "QC_QNN_SDK_ROOT": "the directory of the SDK, such as /opt/qcom/aistack/qairt/<version>",
    "QC_QAIRT_VERSION": "the SDK's version, x.y.z.build",
    "QC_HTP_ARCH": "the board's HTP architecture, such as v68, read on the board",
    "QC_HTP_ARCH_AVAILABLE": "the architectures that the SDK can build for",
    "QC_BOARD_HOST": "SSH alias or user@host of the board",
    "QC_BOARD_ACCESS": "ssh-key, ssh-password, ssh-jump, adb, serial or none",
    "QC_BOARD_JUMP": "jump host of the board",
    "QC_BOARD_ARCH": "the board's processor, such as aarch64",
    "QC_BOARD_IMMUTABLE": "true where the board has no compiler",
    "QC_SOC_MACHINE": "what /sys/devices/soc0/machine says on the board",
    "QC_SOC_ID": "what /sys/devices/soc0/soc_id says on the board",
    "QC_ESDK_ENV": "the eSDK's environment file",
    "QC_ESDK_CC_PREFIX": "prefix of the cross compiler's tools",
    "QC_ESDK_GCC_VERSION": "version of the cross compiler",
    "QC_TARGET_TRIPLE": "target triple of the cross compiler",
    "QC_AIMET_HOST": "SSH alias or user@host of the machine with AIMET",
    "QC_AIMET_FLAVOUR": "aimet-onnx, aimet-torch or none",
}
_MARKER = "QC_SETUP_VERSION"
_HOSTS = ("QC_BUILD_HOST", "QC_BOARD_HOST", "QC_BOARD_JUMP", "QC_AIMET_HOST")
# The same setting by the name that the SDK's own scripts use.
_ALSO = {"QC_QNN_SDK_ROOT": ("QNN_SDK_ROOT",)}
_SECRET_WORDS = re.compile(
    r"(?:^|_)(?:PASS|PWD|PW|TOKENS?|KEYS?|[A-Z]*TOKEN|(?:API|SSH|PRIVATE|PRIV|ACCESS)KEYS?)(?:_|$)"
    r"|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL"
)
_TOO_LARGE = 1 << 20


@dataclass(frozen=True)
class QualcommEnv:
    """What is set. ``source`` is the file, or None where there is none.

    ``origins`` says for each key of ``values`` where it came from; ``unknown`` names the keys of
    the file that mean nothing here; ``warnings`` are sentences for the user.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    source: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def get(self, key: str) -> str:
        """The value of ``key``, "" where it is empty or absent."""
        return self.values.get(key, "")

    def need(self, key: str, why: str) -> str:
        """The value of ``key``. ``why`` says what needs it: "toolchain 'onboard' must know ...".

        Raises UsageError naming the key, its meaning, the reason and where to set it.
        """
        if value := self.get(key):
            return value
        meaning = f" ({KEYS[key]})" if key in KEYS else ""
        if self.source is None:
            where = f"there is no {NAME}"
            there = f"write {key}=... and, last, {_MARKER}={VERSION} into {NAME} at the root"
        else:
            where = (
                f"'{self.source}' leaves it empty"
                if key in self.values
                else (f"'{self.source}' does not have it")
            )
            there = f"set it in '{self.source}'"
        variables = " or ".join((key, *_ALSO.get(key, ())))
        raise UsageError(
            f"{key}{meaning} is not set, and it is needed: {why}; {where}",
            next_step=f"{there}, or set {variables} in the environment",
        )

    def shown(self) -> tuple[tuple[str, str, str], ...]:
        """(key, value, where it came from) of each known key that has a value."""
        return tuple((key, self.values[key], self.origins[key]) for key in KEYS if self.get(key))


def load_qualcomm_env(
    root: Path, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> QualcommEnv:
    """Read ``root/.qualcomm-env``, or else the one in ``home`` (default: the user's).

    A variable of ``environ`` (default: this process's) wins where it is not empty; for
    QC_QNN_SDK_ROOT, QNN_SDK_ROOT comes next. QC_SETUP_VERSION is the file's alone. Raises
    UsageError where the file that was found is half-written, unreadable, holds a credential, or
    anything that is no plain assignment.
    """
    environ = os.environ if environ is None else environ
    path = _find(root, home)
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    if path is not None:
        text, warnings = _read(path)
        assignments = parse_assignments(text, str(path))
        for assignment in assignments:
            _refuse_secret(assignment, path)
            values[assignment.key] = assignment.value
            origins[assignment.key] = f"line {assignment.line} of {path}"
        _check_version(values.get(_MARKER, ""), path)
        unknown = tuple(key for key in values if key not in KEYS)
    for key in KEYS:
        for variable in (key, *_ALSO.get(key, ())):
            if key != _MARKER and (value := environ.get(variable, "")):
                values[key], origins[key] = value, f"environment variable {variable}"
                break
    for key in _HOSTS:
        _refuse_embedded_password(key, values.get(key, ""), origins.get(key, ""))
    return QualcommEnv(values, path, origins, unknown, warnings)


def written_keys(root: Path, home: Path | None = None) -> tuple[str, ...]:
    """The keys that have a value in the file, complete or not. Raises as the loading does."""
    path = _find(root, home)
    if path is None:
        return ()
    return tuple(a.key for a in parse_assignments(_read(path)[0], str(path)) if a.value)


def _find(root: Path, home: Path | None) -> Path | None:
    folders = [root]
    with suppress(RuntimeError):  # this user has none
        folders.append(Path.home() if home is None else home)
    for folder in folders:
        path = folder / NAME
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        return path
    return None


def _unreadable(path: Path, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or error
    return UsageError(
        f"'{path}' cannot be read: {reason}",
        next_step="make it a readable file of lines KEY=VALUE, or remove it",
    )


def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """The file's text, and warnings about who may read or change it."""
    try:
        # Without O_NONBLOCK opening a FIFO would wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OSError("it is no regular file")
            data = file.read(_TOO_LARGE + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > _TOO_LARGE:
        raise UsageError(
            f"'{path}' is larger than 1 MB, which no {NAME} is",
            next_step="see what wrote it, and remove it",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"'{path}', line {line}: it is not UTF-8 text", next_step="save it as UTF-8"
        ) from None
    return text, _mode_warnings(path, stat.S_IMODE(found.st_mode))


def _mode_warnings(path: Path, mode: int) -> tuple[str, ...]:
    if not mode & 0o077:
        return ()
    what = "change" if mode & 0o022 else "read"
    return (f"others can {what} '{path}' (mode {mode:03o}): `chmod 600 {path}`",)


def _refuse_secret(assignment: Assignment, path: Path) -> None:
    if _SECRET_WORDS.search(assignment.key.upper()):
        raise UsageError(
            f"'{path}', line {assignment.line}: {assignment.key} looks like a credential, and "
            f"none belongs into {NAME}",
            next_step="remove the line (and change the credential if others could read it); log "
            "in with keys in ssh-agent or ~/.ssh/config",
        )


def _refuse_embedded_password(key: str, value: str, origin: str) -> None:
    hops = value.split(",") if key == "QC_BOARD_JUMP" else [value]
    users = [hop.strip().removeprefix("ssh://").rpartition("@")[0] for hop in hops]
    if any(":" in user for user in users):
        raise UsageError(
            f"{key} ({origin}) holds a password (the form user:password@host)",
            next_step="write user@host or an alias of ~/.ssh/config, and log in with a key",
        )


def _check_version(text: str, path: Path) -> None:
    number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
    if number == VERSION:
        return
    if number is not None and number > VERSION:
        raise UsageError(
            f"'{path}' was written by a newer setup ({_MARKER}={number}); this version knows "
            f"{VERSION}",
            next_step="install a newer pytest-qnnctx, or write the file for this one",
        )
    if number is not None:
        what = f"it was written by an older setup ({_MARKER}={number})"
    else:
        what = f"its {_MARKER} is {'no number' if text else 'missing or empty'}"
    raise UsageError(
        f"'{path}' is half-written: {what}",
        next_step=f"complete it and end it with the line {_MARKER}={VERSION}; `qnnctx doctor` "
        "shows what is missing",
    )
