"""Whom an SSH destination means, by the user's ``~/.ssh/config`` as ``ssh`` reads it."""

from __future__ import annotations

import getpass
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.hosts.ssh_config_text import read_ssh_config

_DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_DESTINATION = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>[^@\s]+)")
_MAX_HOPS = 8


@dataclass(frozen=True)
class Endpoint:
    """One machine to log in to. ``alias`` is what the user calls it.

    ``given_keys`` tells whether the identity files were configured (a missing default is no
    mistake). ``agent`` is the path of the agent's socket, or "" for none.
    """

    alias: str
    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    given_keys: bool
    identities_only: bool
    agent: str
    known_hosts: tuple[Path, ...]
    key_alias: str
    proxy_command: str | None

    @property
    def host_key_name(self) -> str:
        """Its name in known_hosts."""
        if self.key_alias:
            return self.key_alias
        name = self.hostname.lower()
        return name if self.port == 22 else f"[{name}]:{self.port}"

    def __str__(self) -> str:
        place = f"{self.user}@{self.hostname} port {self.port}"
        return place if self.alias == self.hostname else f"{self.alias} ({place})"


def resolve_route(
    destination: str,
    *,
    port: int | None = None,
    user: str | None = None,
    config_file: Path | None = None,
) -> tuple[Endpoint, ...]:
    """The machines to log in to one after the other: jump hosts, and last the destination.

    ``destination`` is an alias of the configuration, a name, or user@either; ``port`` and
    ``user`` win over the configuration. ``config_file`` stands for ``~/.ssh/config`` and the
    system's, as with ``ssh -F``. StrictHostKeyChecking is not read: keys are always checked.
    Raises UsageError where the destination or the configuration is no good.
    """
    config = read_ssh_config(config_file)
    host, given_user, given_port = _split(destination)
    return tuple(_route(config, host, user or given_user, port or given_port))


def _split(destination: str) -> tuple[str, str | None, int | None]:
    """Name, user and port of ``[ssh://][user@]name``; a port only in the form with ``ssh://``."""
    bare = destination.removeprefix("ssh://")
    found = _DESTINATION.fullmatch(bare)
    if found and ":" in (found["user"] or ""):
        raise UsageError(
            "an SSH destination holds a password (the form user:password@host)",
            next_step="write user@host or an alias of ~/.ssh/config, and log in with a key",
        )
    if found is None or found["host"].startswith("-") or not bare.isprintable():
        raise UsageError(
            f"'{destination}' is no SSH destination",
            next_step="write an alias of ~/.ssh/config, or user@host",
        )
    host, port = found["host"], None
    if bare != destination:
        host, port = _split_port(host.rstrip("/"))
    return host, found["user"], port


def _split_port(text: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?", text)
    if found is None:
        return text, None  # an IPv6 address
    port = found[2] or found[4]
    return found[1] or found[3], int(port) if port else None


def _route(
    config: str,
    host: str,
    user: str | None,
    port: int | None,
    *,
    seen: tuple[str, ...] = (),
    may_jump: bool = True,
) -> Iterator[Endpoint]:
    options = _lookup(config, host, user, port)
    jump = str(options.get("proxyjump") or "none")
    if may_jump and jump.lower() != "none":
        if len(seen) >= _MAX_HOPS or host in seen:
            raise UsageError(
                f"ProxyJump goes round in circles: {' -> '.join((*seen, host))}",
                next_step="correct ProxyJump in the SSH configuration",
            )
        for index, hop in enumerate(jump.split(",")):
            name, hop_user, hop_port = _split_hop(hop.strip())
            # As with `ssh`, only the first is reached by its own ProxyJump.
            yield from _route(
                config, name, hop_user, hop_port, seen=(*seen, host), may_jump=index == 0
            )
        options["proxycommand"] = None
    yield _endpoint(host, options, via_jump=not may_jump)


def _split_hop(hop: str) -> tuple[str, str | None, int | None]:
    name, user, port = _split(hop)
    if port is None:
        name, port = _split_port(name)
    return name, user, port


def _endpoint(host: str, options: dict[str, object], *, via_jump: bool) -> Endpoint:
    def text(key: str, default: str = "") -> str:
        value = options.get(key)
        return default if value is None else str(value)

    def paths(words: str) -> tuple[Path, ...]:
        return tuple(_expand(word, host, options) for word in shlex.split(words) if _is_file(word))

    keys = options.get("identityfile")
    given = [str(key) for key in keys] if isinstance(keys, list) else []
    try:
        return Endpoint(
            alias=host,
            hostname=text("hostname", host),
            port=_port(text("port", "22")),
            user=text("user") or getpass.getuser(),
            identity_files=tuple(
                _expand(key, host, options) for key in given or _DEFAULT_KEYS if _is_file(key)
            ),
            given_keys=bool(given),
            identities_only=text("identitiesonly").lower() in ("yes", "true"),
            agent=_agent(text("identityagent", "SSH_AUTH_SOCK"), host, options),
            known_hosts=paths(text("userknownhostsfile", _KNOWN_HOSTS))
            + paths(text("globalknownhostsfile", _SYSTEM_KNOWN_HOSTS)),
            key_alias=text("hostkeyalias"),
            proxy_command=None if via_jump else text("proxycommand") or None,
        )
    except (ValueError, KeyError, RuntimeError) as error:
        raise UsageError(
            f"the SSH configuration of '{host}' is no good: {error}", next_step="correct it"
        ) from error


def _is_file(word: str) -> bool:
    return word.lower() not in ("none", "/dev/null")


def _agent(text: str, host: str, options: dict[str, object]) -> str:
    """The agent's socket, "" where there is none or none is wanted."""
    if text.lower() == "none":
        return ""
    if text == "SSH_AUTH_SOCK":
        return os.environ.get(text, "")
    if text.startswith("$"):
        return os.environ.get(text.strip("${}"), "")
    return str(_expand(text, host, options))


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"'{text}' is no port")
    return int(text)


def _expand(path: str, host: str, options: dict[str, object]) -> Path:
    """A path with its ``~`` and tokens filled in. Raises RuntimeError where nobody has a home."""
    values = {
        "%": "%",
        "h": str(options.get("hostname") or host),
        "n": host,
        "p": str(options.get("port") or 22),
        "r": str(options.get("user") or ""),
    }
    if "%" in path:
        values |= {"d": str(Path.home()), "u": getpass.getuser()}
    filled = re.sub(r"%(.)", lambda token: values.get(token[1], token[0]), path)
    return Path(filled).expanduser()


def _lookup(config: str, host: str, user: str | None, port: int | None) -> dict[str, object]:
    """What the configuration says of ``host``. First of all counts what the caller gave."""
    import paramiko

    given = [f"User {user}"] if user else []
    given += [f"Port {port}"] if port else []
    try:
        found = paramiko.SSHConfig.from_text("\n".join([*given, config])).lookup(host)
    except Exception as error:  # the parser raises anything: a KeyError for a bad Match ...
        raise UsageError(
            f"the SSH configuration cannot be read for '{host}': {error}",
            next_step="correct it; `ssh -G HOST` shows what ssh makes of it",
        ) from error
    return dict(found)
