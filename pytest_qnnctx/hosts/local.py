"""The host that is this machine itself."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.calls import (
    check_command,
    check_file,
    check_limit,
    closed,
    deadline_after,
    no_directory,
    not_in_time,
)
from pytest_qnnctx.hosts.host import Completed
from pytest_qnnctx.process import run_child

_CHUNK = 1 << 20


class LocalHost:
    """Runs commands and copies files on this machine; ``name`` is what messages call it."""

    def __init__(self, name: str = "this machine") -> None:
        self.name = name
        self._closed = False

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        """Run ``argv`` in a process group of its own, which ends with it or at ``timeout_s``.

        A command that does not exist ends with 127 and one that cannot be executed with 126, as in
        a shell. Of very long output the middle is left out.
        """
        self._check_open()
        check_limit(timeout_s)
        command = check_command(argv)
        if cwd is not None and not Path(cwd).is_dir():
            raise no_directory(self.name, command, cwd)
        try:
            done = run_child(command, time_limit_s=timeout_s, env=env, cwd=cwd)
        except (FileNotFoundError, NotADirectoryError):
            return Completed(command, 127, "", f"{command[0]}: command not found\n")
        except PermissionError:
            return Completed(command, 126, "", f"{command[0]}: permission denied\n")
        except OSError as error:
            return Completed(command, 126, "", f"{command[0]}: {error.strerror or error}\n")
        if done.timed_out:
            raise not_in_time(self.name, command, timeout_s, done.stderr or done.stdout)
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Completed(command, code, done.stdout, done.stderr)

    def push(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy the file ``local`` to the path ``remote``, whose directory must exist.

        Raises UsageError where ``local`` is no file.
        """
        self._check_open()
        check_file(self.name, local)
        with self._copying(local, remote):
            _copy_file(local, Path(remote), deadline_after(timeout_s))

    def pull(self, remote: str, local: Path, *, timeout_s: float) -> None:
        """Copy the file or directory ``remote`` to the path ``local``, which is whole afterwards.

        A directory is not copied over something that exists (UsageError). Symbolic links stay
        links.
        """
        self._check_open()
        source, deadline = Path(remote), deadline_after(timeout_s)
        if source.is_dir() and os.path.lexists(local):
            raise UsageError(
                f"{self.name}: '{remote}' is a directory, and '{local}' exists already",
                next_step="copy it to a path that does not exist",
            )
        with self._copying(source, str(local)):
            if source.is_dir():
                _copy_tree(source, local, deadline)
            else:
                _copy_file(source, local, deadline)

    def close(self) -> None:
        """Nothing is held; later calls are refused."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self.name)

    @contextmanager
    def _copying(self, source: Path, target: str) -> Iterator[None]:
        """Turn what goes wrong with a copy into InfrastructureError."""
        try:
            yield
        except TimeoutError as error:
            raise InfrastructureError(
                f"{self.name}: copying '{source}' to '{target}' took longer than allowed",
                next_step="see whether the disk is overloaded, or allow more time",
            ) from error
        except (OSError, shutil.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise InfrastructureError(
                f"{self.name}: copying '{source}' to '{target}' failed: {reason}",
                next_step="check that the directory exists, is writable and has space",
            ) from error


def _copy_file(source: Path, target: Path, deadline: float) -> None:
    """Copy to a name beside ``target``, bring it to the disk, and rename it."""
    mode = source.stat().st_mode
    if not stat.S_ISREG(mode):
        # Opening a FIFO would wait for ever.
        raise OSError(f"'{source}' is neither a file nor a directory")
    handle, name = tempfile.mkstemp(prefix=".copying-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as written, source.open("rb") as read:
            while chunk := read.read(_CHUNK):
                _check_time(deadline)
                written.write(chunk)
            written.flush()
            os.fchmod(written.fileno(), stat.S_IMODE(mode))
            os.fsync(written.fileno())
        _check_time(deadline)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _copy_tree(source: Path, target: Path, deadline: float) -> None:
    parent = Path(tempfile.mkdtemp(prefix=".copying-", dir=target.parent))

    def copy(one: str, other: str) -> str:
        _copy_file(Path(one), Path(other), deadline)
        return other

    try:
        whole = parent / "tree"
        shutil.copytree(source, whole, symlinks=True, copy_function=copy)
        whole.rename(target)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError
