"""Opening SSH connections: the stream, the host key, the login; through jump hosts if need be."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.hosts.known_hosts import (
    KnownKey,
    fingerprint,
    judge_key,
    kinds_for,
    read_known_hosts,
)
from pytest_qnnctx.hosts.ssh_config import Endpoint
from pytest_qnnctx.hosts.ssh_login import LoginRefused, log_in
from pytest_qnnctx.hosts.ssh_socket import ProxyProcess, open_tcp

if TYPE_CHECKING:
    import paramiko

_KEEPALIVE_S = 5
_LOGGER = "pytest_qnnctx.ssh"


class Connection:
    """A connection that is logged in; ``transport`` is the library's. Holds its jump hosts too."""

    def __init__(self) -> None:
        self._transports: list[paramiko.Transport] = []
        self._proxies: list[ProxyProcess] = []

    @property
    def transport(self) -> paramiko.Transport:
        """The connection to the destination itself."""
        return self._transports[-1]

    def close(self) -> None:
        """End all of it; safe to call twice."""
        for transport in reversed(self._transports):
            transport.close()
        for proxy in self._proxies:
            proxy.close()

    def add(self, transport: paramiko.Transport) -> None:
        """Hold ``transport``; the next one goes through it."""
        self._transports.append(transport)

    def stream(self, endpoint: Endpoint, timeout_s: float) -> socket.socket | paramiko.Channel:
        """A stream to ``endpoint``. Raises OSError and the library's errors."""
        if self._transports:
            return self.transport.open_channel(
                "direct-tcpip",
                (endpoint.hostname, endpoint.port),
                ("127.0.0.1", 0),
                timeout=timeout_s,
            )
        if endpoint.proxy_command:
            proxy = ProxyProcess(endpoint.proxy_command)
            self._proxies.append(proxy)
            return proxy.socket
        return open_tcp(endpoint.hostname, endpoint.port, timeout_s)

    def proxy_said(self) -> str:
        """What a ProxyCommand wrote to its standard error."""
        return "".join(proxy.said() for proxy in self._proxies)


def connect(name: str, route: Sequence[Endpoint], timeout_s: float) -> Connection:
    """Log in to the machines of ``route``, one through the other, in ``timeout_s`` altogether.

    Raises InfrastructureError, which calls the machine ``name``, says which step failed at which
    host, and what to do.
    """
    connection = Connection()
    deadline = time.monotonic() + timeout_s
    try:
        for endpoint in route:
            _add_hop(name, connection, endpoint, deadline, timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _add_hop(
    name: str, connection: Connection, endpoint: Endpoint, deadline: float, timeout_s: float
) -> None:
    import paramiko

    def left() -> float:
        return max(deadline - time.monotonic(), 0.05)

    _keep_quiet()
    try:
        known = read_known_hosts(endpoint.known_hosts)
        transport = paramiko.Transport(connection.stream(endpoint, left()))
        connection.add(transport)
        transport.set_log_channel(_LOGGER)
        transport.banner_timeout = transport.handshake_timeout = left()
        _prefer(transport, kinds_for(known, endpoint.host_key_name))
        transport.start_client(timeout=left())
        _check_host_key(name, endpoint, known, transport.get_remote_server_key())
        transport.auth_timeout = left()
        log_in(transport, endpoint)
        transport.set_keepalive(_KEEPALIVE_S)
    except LoginRefused as refused:
        raise _login_refused(name, endpoint, refused) from refused
    except (OSError, EOFError, paramiko.SSHException) as error:
        late = time.monotonic() >= deadline
        what, then = _reason(error, endpoint, timeout_s if late else None)
        said = connection.proxy_said()
        raise InfrastructureError(
            f"{name}: no SSH connection to {endpoint}: {what}" + (f" ({said})" if said else ""),
            next_step=then,
        ) from error


def _keep_quiet() -> None:
    """The library logs tracebacks of what is said in our own words; a handler can be added."""
    logger = logging.getLogger(_LOGGER)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _prefer(transport: paramiko.Transport, kinds: Sequence[str]) -> None:
    """Ask for a host key of a known kind first: a server has several, and one is on record."""
    algorithms: list[str] = []
    for kind in kinds:
        algorithms += ["rsa-sha2-512", "rsa-sha2-256"] if kind == "ssh-rsa" else [kind]
    options = transport.get_security_options()
    able = options.key_types
    first = [algorithm for algorithm in algorithms if algorithm in able]
    options.key_types = [*first, *(one for one in able if one not in first)]


def _check_host_key(
    name: str, endpoint: Endpoint, known: Sequence[KnownKey], key: paramiko.PKey
) -> None:
    """Raises InfrastructureError where the key is not the one on record."""
    blob, kind = key.asbytes(), key.get_name()
    verdict = judge_key(known, endpoint.host_key_name, kind, blob)
    if verdict.state == "unknown" and endpoint.host_key_name.startswith("["):
        # As with `ssh`: a key that is on record for the machine counts for its other ports.
        plain = judge_key(known, endpoint.hostname.lower(), kind, blob)
        if plain.state in ("known", "revoked"):
            verdict = plain
    if verdict.state == "known":
        return
    shown = f"its {kind} host key ({fingerprint(blob)})"
    short = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}.get(kind, "ecdsa")
    compare = (
        "compare the fingerprint with the one that the machine itself shows (there: `ssh-keygen "
        f"-lf /etc/ssh/ssh_host_{short}_key.pub`)"
    )
    files = ", ".join(map(str, endpoint.known_hosts)) or "no known_hosts file"
    if verdict.state == "unknown":
        what = f"{shown} is not known ({files})"
        then = f"run `ssh {endpoint.alias}` once by hand, {compare}, and accept it"
    elif verdict.state == "revoked":
        what = f"{shown} is revoked by {verdict.known.where if verdict.known else 'known_hosts'}"
        then = "do not use the machine before its owner has given it a new key"
    else:
        where = verdict.known.where if verdict.known else "known_hosts"
        what = (
            f"{shown} is not the one in {where}: another machine answers, or it was installed anew"
        )
        then = (
            f"{compare}; if it is right, `ssh-keygen -R '{endpoint.host_key_name}'`, then "
            f"`ssh {endpoint.alias}` once by hand"
        )
    raise InfrastructureError(f"{name}: {endpoint} is not trusted: {what}", next_step=then)


def _login_refused(name: str, endpoint: Endpoint, refused: LoginRefused) -> InfrastructureError:
    tried = "".join(f"\n  - {line}" for line in refused.tried)
    return InfrastructureError(
        f"{name}: {endpoint} refused the login: {refused}{tried}",
        next_step=f"`ssh {endpoint.alias}` must work without a password: load the key into "
        f"ssh-agent (`ssh-add`), name it as IdentityFile, or bring it there with `ssh-copy-id "
        f"{endpoint.alias}`",
    )


def _reason(error: BaseException, endpoint: Endpoint, timeout_s: float | None) -> tuple[str, str]:
    """What went wrong with a connection, and what to do."""
    import paramiko
    from paramiko.ssh_exception import IncompatiblePeer

    where = f"{endpoint.hostname} port {endpoint.port}"
    if isinstance(error, paramiko.ChannelException):
        return (
            f"the jump host does not let through to {where} ({error.text})",
            "see whether it can reach that machine, and allows forwarding (AllowTcpForwarding)",
        )
    if isinstance(error, socket.gaierror):
        return (
            f"the name '{endpoint.hostname}' is not known",
            "correct the name, or HostName of the alias in ~/.ssh/config",
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"{where} refuses connections",
            "see whether the machine has booted, sshd runs there, and the port is right",
        )
    if isinstance(error, PermissionError | FileNotFoundError | IsADirectoryError):
        return (f"'{error.filename}' cannot be read: {error.strerror}", "correct its permissions")
    if timeout_s is not None or isinstance(error, TimeoutError):
        waited = f" within {timeout_s:g} s" if timeout_s is not None else ""
        return (
            f"{where} did not answer{waited}",
            "see whether the machine is switched on and this one can reach it",
        )
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{where}: {error.strerror}",
            "see whether the machine is switched on and this one can reach it",
        )
    if isinstance(error, IncompatiblePeer):
        return (f"{where} offers no common way to encrypt ({error})", "update its SSH server")
    return (
        f"{where} does not answer as an SSH server ({error or type(error).__name__})",
        "see whether the port is right, and what the server's log says",
    )
