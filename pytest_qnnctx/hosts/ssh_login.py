"""Logging in with the keys of an SSH agent and of identity files; never with a password."""

from __future__ import annotations

import base64
import binascii
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.hosts.ssh_config import Endpoint

if TYPE_CHECKING:
    import paramiko

_AGENT_S = 10.0


class LoginRefused(Exception):
    """No key was taken. ``tried`` says for each key what came of it."""

    def __init__(self, what: str, tried: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.tried = tried


def log_in(transport: paramiko.Transport, endpoint: Endpoint) -> None:
    """Log in as the endpoint's user. Raises LoginRefused, and the library's errors of a connection.

    First without any key, as ``ssh`` does: some boards let root in so, and the others answer what
    they take. Then the agent's keys that the configuration names, its identity files, and the
    agent's other keys; a server hangs up after a few.
    """
    import paramiko

    try:
        transport.auth_none(endpoint.user)
        return
    except paramiko.BadAuthenticationType as error:
        allowed = error.allowed_types
    except paramiko.AuthenticationException:
        allowed = ["publickey"]
    if "publickey" not in allowed:
        raise LoginRefused(f"the server takes no keys, only: {', '.join(allowed) or 'nothing'}")
    tried: list[str] = []
    with _Keys(endpoint, tried) as keys:
        for label, key in keys:
            try:
                further = transport.auth_publickey(endpoint.user, key)
            except paramiko.AuthenticationException:
                if not transport.is_active():
                    tried.append(f"{label}: the server hung up (too many keys, perhaps)")
                    break
                tried.append(f"{label}: refused")
                continue
            if transport.is_authenticated():
                return
            tried.append(f"{label}: taken, but the server wants more ({', '.join(further)})")
    raise LoginRefused("no key was accepted", tuple(tried))


class _Keys:
    """The keys to try, with a label each; what cannot be tried is noted in ``tried``."""

    def __init__(self, endpoint: Endpoint, tried: list[str]) -> None:
        self._endpoint = endpoint
        self._tried = tried
        self._socket: socket.socket | None = None

    def __enter__(self) -> Iterator[tuple[str, paramiko.PKey]]:
        return self._all()

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def _all(self) -> Iterator[tuple[str, paramiko.PKey]]:
        endpoint = self._endpoint
        agent = self._agent_keys()
        public = {_public_blob(file) for file in endpoint.identity_files}
        named = [key for key in agent if key.asbytes() in public]
        others = [key for key in agent if key.asbytes() not in public]
        yield from (("agent, a configured key", key) for key in named)
        if not endpoint.given_keys:
            yield from (("agent", key) for key in others)
        done = {key.asbytes() for key in named}
        for file in endpoint.identity_files:
            key = self._load(file)
            if key is not None and key.asbytes() not in done:
                yield str(file), key
        if endpoint.given_keys and not endpoint.identities_only:
            yield from (("agent", key) for key in others)

    def _agent_keys(self) -> tuple[paramiko.PKey, ...]:
        if not self._endpoint.agent:
            self._tried.append("no SSH agent is running")
            return ()
        from paramiko.agent import AgentSSH

        agent = AgentSSH()
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_AGENT_S)
            self._socket.connect(self._endpoint.agent)
            # The library's own way takes SSH_AUTH_SOCK alone.
            agent._connect(self._socket)  # type: ignore[attr-defined]
        except Exception as error:  # a dead, foreign or locked agent is no reason to stop
            self._tried.append(f"the SSH agent cannot be asked: {error}")
            return ()
        keys = agent.get_keys()
        if not keys:
            self._tried.append("the SSH agent holds no key")
        return tuple(keys)

    def _load(self, file: Path) -> paramiko.PKey | None:
        """The private key in ``file``, or None and a note of why not."""
        import paramiko

        if file.suffix == ".pub":
            return None  # names a key of the agent
        try:
            return paramiko.PKey.from_path(str(file))
        except FileNotFoundError:
            if self._endpoint.given_keys:
                self._tried.append(f"{file}: does not exist")
        except OSError as error:
            self._tried.append(f"{file}: cannot be read ({error.strerror or error})")
        except (TypeError, paramiko.PasswordRequiredException):
            # Encrypted; the library of ciphers says so with a TypeError.
            self._tried.append(f"{file}: needs its passphrase (load it with `ssh-add {file}`)")
        except Exception:  # ValueError, UnknownKeyType, UnsupportedAlgorithm ...
            self._tried.append(f"{file}: is no private key that can be used here")
        return None


def _public_blob(file: Path) -> bytes | None:
    """The public part of an identity file, from the file beside it."""
    public = file if file.suffix == ".pub" else file.with_name(file.name + ".pub")
    with suppress(OSError, UnicodeDecodeError, IndexError, binascii.Error):
        return base64.b64decode(public.read_text(encoding="utf-8").split()[1])
    return None
