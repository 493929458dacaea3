"""A real OpenSSH server on the loopback, of its own user, keys and port, for tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LIMIT_S = 20.0
# A killed test session must leave no server behind (Linux; elsewhere it may).
_BECOME = """\
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
os.execv(sys.argv[1], sys.argv[1:])
"""
_DIES_WITH_PARENT = (sys.executable, "-I", "-S", "-c", _BECOME)
#: Where OpenSSH started by root wants its empty directory.
_PRIVILEGE_SEPARATION = Path("/run/sshd")


def find_sshd() -> str | None:
    """The server's program; it is often not on a user's PATH."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def why_not() -> str:
    """Why no server can run here, or "" where one can."""
    if find_sshd() is None:
        return "needs OpenSSH's sshd"
    if shutil.which("ssh-keygen") is None:
        return "needs OpenSSH's ssh-keygen"
    if os.geteuid() == 0:
        try:
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            return f"sshd run by root needs {_PRIVILEGE_SEPARATION}: {error}"
    return ""


def new_key(path: Path, *, passphrase: str = "") -> Path:
    """A new key pair: the private key's path."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)],
        check=True,
        timeout=60,
    )
    return path


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class SshServer:
    """A server in ``directory``; :attr:`config_file` is an ssh config that knows it as `buildbox`.

    ``buildbox-jump`` is the same machine, reached through itself.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.user = getpass.getuser()
        self.identity_file = new_key(directory / "identity")
        self.host_key = new_key(directory / "host_key")
        self.known_hosts = directory / "known_hosts"
        self.config_file = directory / "ssh_config"
        self.port = 0
        self._server: subprocess.Popen[bytes] | None = None
        authorized = directory / "authorized_keys"
        authorized.write_text(self.identity_file.with_suffix(".pub").read_text())

    def start(self) -> None:
        """Start it on a free port (the same again after :meth:`stop`) and wait until it listens."""
        assert self._server is None, "it runs already"
        for _ in range(5):
            port = self.port or free_port()
            if self._start(port):
                self.port = port
                self._write_client_files()
                return
        raise AssertionError(f"sshd does not start:\n{self.log()}")

    def log(self) -> str:
        """What the server has written to its log."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def alias(self, name: str, **options: object) -> Path:
        """A config file in which ``name`` is this server, with ``options`` changed or added."""
        values = self._client_options() | options
        lines = [f"Host {name}", *(f"  {key} {value}" for key, value in values.items())]
        path = self.directory / f"config-{name}-{time.monotonic_ns()}"
        path.write_text("\n".join(lines) + "\n")
        return path

    def connections(self) -> list[int]:
        """The processes that serve connections now."""
        if self._server is None:
            return []
        return _descendants(self._server.pid)[1:]

    def stop(self) -> None:
        """End the listener and every connection, as a machine that shuts down."""
        if self._server is None:
            return
        # What the connections run is left alone: it must end by itself when its connection ends.
        _signal([self._server.pid, *self._sshd_processes()], signal.SIGTERM)
        try:
            self._server.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._server = None

    def kill(self) -> None:
        """End the listener and every connection at once, with no goodbye."""
        if self._server is None:
            return
        _signal([self._server.pid, *self._sshd_processes()], signal.SIGKILL)
        self._server.wait(_LIMIT_S)
        self._server = None

    def drop_connections(self) -> None:
        """End every connection at once; the server goes on listening."""
        _signal(self._sshd_processes(), signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Every connection stands still, and stays open, meanwhile."""
        stopped = self.connections()
        try:
            _signal(stopped, signal.SIGSTOP)
            yield
        finally:
            _signal(stopped, signal.SIGCONT)

    def _sshd_processes(self) -> list[int]:
        names = {pid: _command_name(pid) for pid in self.connections()}
        return [pid for pid, name in names.items() if name.startswith("sshd")]

    def _start(self, port: int) -> bool:
        sshd = find_sshd()
        assert sshd is not None
        config = self.directory / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1\nPort {port}\n"
            f"HostKey {self.host_key}\nPidFile {self.directory / 'sshd.pid'}\n"
            f"AuthorizedKeysFile {self.directory / 'authorized_keys'}\n"
            "StrictModes no\nUsePAM no\nUseDNS no\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "MaxStartups 100\nMaxSessions 100\nLoginGraceTime 30\n"
        )
        self._server = subprocess.Popen(
            [*_DIES_WITH_PARENT, sshd, "-D", "-f", str(config), "-E", str(self.directory / "log")],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _LIMIT_S
        while self._server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                if self._server.poll() is None:
                    return True
            time.sleep(0.02)
        self.kill()
        return False

    def _client_options(self) -> dict[str, object]:
        return {
            "HostName": "127.0.0.1",
            "Port": self.port,
            "User": self.user,
            "IdentityFile": self.identity_file,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
        }

    def _write_client_files(self) -> None:
        kind, key = self.host_key.with_suffix(".pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")
        options = [f"  {key} {value}" for key, value in self._client_options().items()]
        lines = [
            *("Host buildbox-jump", "  ProxyJump buildbox"),
            *("Host buildbox buildbox-jump", *options),
        ]
        self.config_file.write_text("\n".join(lines) + "\n")


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a connection may end at any time
            os.kill(pid, number)


def _command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def _descendants(pid: int) -> list[int]:
    """``pid`` and every process below it, of those that run now."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found
