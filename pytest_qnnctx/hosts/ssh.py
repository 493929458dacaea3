"""The host that is reached over SSH: a build host, or a board."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.calls import (
    check_command,
    check_file,
    closed,
    deadline_after,
    no_directory,
    not_in_time,
)
from pytest_qnnctx.hosts.framed import KeptOutput
from pytest_qnnctx.hosts.host import Completed
from pytest_qnnctx.hosts.receive import ScriptOutput, check_code, receive_file, receive_tree
from pytest_qnnctx.hosts.remote_shell import (
    NO_DIRECTORY,
    command_script,
    pull_script,
    push_script,
)
from pytest_qnnctx.hosts.shell_run import ConnectionGone, ShellEnded, ShellRun
from pytest_qnnctx.hosts.ssh_config import resolve_route
from pytest_qnnctx.hosts.ssh_connect import Connection, connect

#: What to look at where a machine is gone in the middle of a copy to it.
BURST_WRITE = (
    "look at its uptime before blaming the network: on a board, a burst write to eMMC can reset "
    "it; stage through /tmp (tmpfs)"
)
_LOOK = "look at its uptime (it may have been reset), and at the network between"
_CANCEL_S = 5.0


def open_ssh(
    destination: str,
    *,
    name: str,
    port: int | None = None,
    user: str | None = None,
    config_file: Path | None = None,
    connect_timeout_s: float = 20.0,
    lost_in_push: str = BURST_WRITE,
) -> SshHost:
    """Log in to ``destination``: an alias of ``~/.ssh/config``, a machine's name, or user@either.

    ``name`` is what messages call it. HostName, Port, User, IdentityFile, IdentitiesOnly,
    IdentityAgent, ProxyJump, ProxyCommand, HostKeyAlias and the known_hosts files are read as
    ``ssh`` reads them, from ``config_file`` in the place of the user's and the system's where it
    is given; ``port`` and ``user`` win. Host keys are always checked, and nothing asks for a
    password. ``lost_in_push`` is the next step where the connection breaks during a push.

    Raises UsageError for a bad destination or configuration, and InfrastructureError that says
    which host failed at which step.
    """
    deadline_after(connect_timeout_s)
    route = resolve_route(destination, port=port, user=user, config_file=config_file)
    return SshHost(name, connect(name, route, connect_timeout_s), lost_in_push)


class SshHost:
    """Runs commands and copies files on another machine; see :func:`open_ssh`.

    The machine needs sshd and a POSIX shell with the usual tools (``cat``, ``mv``, ``wc``; ``tar``
    for directories): no SFTP. A call that loses the connection raises InfrastructureError; what it
    ran there is ended by its end.
    """

    def __init__(self, name: str, connection: Connection, lost_in_push: str = BURST_WRITE) -> None:
        self.name = name
        self._connection = connection
        self._lost_in_push = lost_in_push
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

        ``env`` is added to the login's environment. A command that does not exist ends with 127
        and one that cannot be executed with 126. Of very long output the middle is left out. The
        command also ends when this process does.
        """
        self._check_open()
        deadline = deadline_after(timeout_s)
        command = check_command(argv)
        out, err = KeptOutput(), KeptOutput()
        with (
            self._speaking(f"{command[0]} ran there", _LOOK, lambda: err.text() or out.text()),
            self._run(deadline, out.add, err.add) as run,
        ):
            try:
                self._start(run, command_script(run.marks, command, env, cwd))
                code = run.finish()
            except TimeoutError:
                killed = run.cancel(_CANCEL_S)
                said = err.text() or out.text()
                raise not_in_time(self.name, command, timeout_s, said, killed=killed) from None
            if code != NO_DIRECTORY and not code.isdecimal():
                raise ShellEnded(f"its last word was '{code[:100]}'")
        if code == NO_DIRECTORY:
            raise no_directory(self.name, command, cwd or "")
        return Completed(command, int(code), out.text(), err.text())

    def push(self, local: Path, remote: str, *, timeout_s: float) -> None:
        """Copy the file ``local`` to the path ``remote``, whose directory must exist.

        Raises UsageError where ``local`` is no file.
        """
        self._check_open()
        deadline = deadline_after(timeout_s)
        check_file(self.name, local)
        err = KeptOutput()
        with (
            self._copying(str(local), remote),
            self._speaking(
                f"'{local}' was being copied to '{remote}'", self._lost_in_push, err.text
            ),
            local.open("rb") as file,
            self._run(deadline, lambda _: None, err.add) as run,
        ):
            found = os.fstat(file.fileno())
            try:
                self._start(run, push_script(run.marks, remote, found.st_size, found.st_mode))
                whole = run.out.head != "ready" or run.send(file, found.st_size)
                run.end_input()
                code = run.finish()
            except TimeoutError:
                run.cancel(_CANCEL_S)  # waits until the half copy is removed
                raise
            if not whole:
                raise OSError("it became shorter while it was copied")
            check_code(code, err)

    def pull(self, remote: str, local: Path, *, timeout_s: float) -> None:
        """Copy the file or directory ``remote`` to the path ``local``, which is whole afterwards.

        A directory is not copied over something that exists (UsageError). Symbolic links within it
        stay links.
        """
        self._check_open()
        deadline = deadline_after(timeout_s)
        body, err = bytearray(), KeptOutput()
        with (
            self._copying(remote, str(local)),
            self._speaking(f"'{remote}' was being copied to '{local}'", _LOOK, err.text),
            self._run(deadline, body.extend, err.add) as run,
        ):
            self._start(run, pull_script(run.marks, remote))
            kind, _, mode = (run.out.head or "").partition(" ")
            stream = ScriptOutput(run, body)
            if kind == "tree":
                if os.path.lexists(local):
                    raise UsageError(
                        f"{self.name}: '{remote}' is a directory, and '{local}' exists already",
                        next_step="copy it to a path that does not exist",
                    )
                receive_tree(stream, local, err)
            elif kind == "file":
                receive_file(stream, local, _mode(mode), err)
            else:
                check_code(run.finish(), err)

    def close(self) -> None:
        """End the connection; later calls are refused."""
        self._closed = True
        self._connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self.name)

    def _run(
        self,
        deadline: float,
        take_out: Callable[[bytes], object],
        take_err: Callable[[bytes], object],
    ) -> ShellRun:
        return ShellRun(self._connection.transport, deadline, take_out, take_err)

    def _start(self, run: ShellRun, script: str) -> None:
        """Start ``script``; a machine that gives no shell is told from one that lost it later."""
        try:
            run.start(script)
        except ShellEnded as ended:
            said = f": {run.noise or ended}" if run.noise or str(ended) else ""
            raise InfrastructureError(
                f"{self.name}: the login works, but gives no POSIX shell{said}",
                next_step="`ssh HOST sh` must give a shell: an account for SFTP only, or with a "
                "forced command, will not do",
            ) from ended

    @contextmanager
    def _speaking(self, doing: str, then: str, said: Callable[[], str]) -> Iterator[None]:
        """Turn the loss of the connection or of the shell into InfrastructureError."""
        try:
            yield
        except ConnectionGone as gone:
            words = said().strip()[-2000:]
            raise InfrastructureError(
                f"{self.name}: it was reachable and is gone: the connection broke while {doing}"
                + (f"; last words: {words}" if words else ""),
                next_step=then,
            ) from gone
        except ShellEnded as ended:
            words = said().strip()[-2000:]
            raise InfrastructureError(
                f"{self.name}: its shell was ended from outside while {doing}"
                + (f"; last words: {words}" if words else ""),
                next_step="see in the machine's log whether it ran out of memory",
            ) from ended

    @contextmanager
    def _copying(self, source: str, target: str) -> Iterator[None]:
        """Turn what else goes wrong with a copy into InfrastructureError."""
        try:
            yield
        except TimeoutError as error:
            raise InfrastructureError(
                f"{self.name}: copying '{source}' to '{target}' took longer than allowed",
                next_step="see whether the machine or the network is overloaded, or allow more "
                "time",
            ) from error
        except (OSError, shutil.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise InfrastructureError(
                f"{self.name}: copying '{source}' to '{target}' failed: {reason}",
                next_step="check that the directory exists, is writable and has space",
            ) from error


def _mode(text: str) -> int:
    """Permissions as the machine has written them, without bits that give rights of others."""
    return int(text, 8) & 0o777 if re.fullmatch("[0-7]{1,5}", text) else 0o644
