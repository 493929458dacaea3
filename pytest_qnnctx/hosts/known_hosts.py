"""Whether a machine's host key is the one that the user has accepted, by ``known_hosts`` files."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["known", "unknown", "changed", "revoked"]


@dataclass(frozen=True)
class KnownKey:
    """One line: the names it is for, and a key. ``where`` is "FILE line N"."""

    names: str
    kind: str
    key: bytes
    where: str
    revoked: bool = False

    def is_for(self, name: str) -> bool:
        """Whether the line is for ``name``: a host, or ``[host]:port``."""
        patterns = self.names.split(",")
        if any(p.startswith("!") and _matches(p[1:], name) for p in patterns):
            return False
        return any(_matches(p, name) for p in patterns if not p.startswith("!"))


@dataclass(frozen=True)
class KeyVerdict:
    """What the files say of a host key; ``known`` is the line that decided."""

    state: State
    known: KnownKey | None = None


def read_known_hosts(paths: Iterable[Path]) -> tuple[KnownKey, ...]:
    """The keys of all files that exist. What is no key line is passed over, as ``ssh`` does.

    Lines of certificate authorities are too: a key that only they vouch for is unknown.
    Raises OSError where a file exists and cannot be read.
    """
    found: list[KnownKey] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            key = _parse(line, f"{path} line {number}")
            if key is not None:
                found.append(key)
    return tuple(found)


def judge_key(keys: Sequence[KnownKey], name: str, kind: str, key: bytes) -> KeyVerdict:
    """What ``keys`` say of the host key that ``name`` has shown."""
    for known in keys:
        if known.revoked and known.key == key and known.is_for(name):
            return KeyVerdict("revoked", known)
    mine = [known for known in keys if not known.revoked and known.is_for(name)]
    for known in mine:
        if known.key == key:
            return KeyVerdict("known", known)
    # A machine shows one kind of key of several: the kinds that are known are asked for first,
    # so that another one means another machine.
    same = [known for known in mine if known.kind == kind]
    if mine:
        return KeyVerdict("changed", (same or mine)[0])
    return KeyVerdict("unknown")


def kinds_for(keys: Sequence[KnownKey], name: str) -> tuple[str, ...]:
    """The kinds of key (``ssh-ed25519`` ...) that are known of ``name``."""
    return tuple(dict.fromkeys(k.kind for k in keys if not k.revoked and k.is_for(name)))


def fingerprint(key: bytes) -> str:
    """A key's fingerprint as OpenSSH writes it."""
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def _parse(line: str, where: str) -> KnownKey | None:
    words = line.split()
    revoked = bool(words) and words[0] == "@revoked"
    if revoked:
        words = words[1:]
    if len(words) < 3 or words[0].startswith(("#", "@")):
        return None
    try:
        key = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return KnownKey(words[0], words[1], key, where, revoked)


def _matches(pattern: str, name: str) -> bool:
    if not pattern.startswith("|"):
        # Brackets stand for themselves here: [host]:port.
        return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))
    try:
        _, version, salt, digest = pattern.split("|")
        key, wanted = base64.b64decode(salt), base64.b64decode(digest)
    except (binascii.Error, ValueError):
        return False
    return version == "1" and hmac.compare_digest(hmac.digest(key, name.encode(), "sha1"), wanted)
