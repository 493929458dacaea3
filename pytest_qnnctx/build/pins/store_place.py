"""Where pinned binaries are kept: a directory or a URL, and how it is shown without its secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from pytest_qnnctx.errors import UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>\\^`{|}]+")
#: Here the part before the ``@`` names a container, not a user.
_CONTAINER_SCHEMES = frozenset({"az", "abfs", "abfss"})

EXAMPLES = "a directory, file:///..., https://..., s3://..., gs://... or az://..."


@dataclass(frozen=True)
class StorePlace:
    """A store. Either ``directory`` is set or ``url``, which ends in no slash.

    ``text`` is how the manifest writes it; ``str()`` is fit for messages.
    """

    text: str
    directory: Path | None = None
    url: str = ""

    @property
    def scheme(self) -> str:
        """``https``, ``s3`` ...; empty for a directory."""
        return self.url.partition("://")[0].lower()

    def address(self, file: str) -> str:
        """The path or URL of ``file`` in the store."""
        return f"{self.url}/{file}" if self.directory is None else str(self.directory / file)

    def __str__(self) -> str:
        return shown(self.url) if self.directory is None else str(self.directory)


def parse_store(text: str, base: Path, where: str) -> StorePlace:
    """The store that ``text`` names; a directory is relative to ``base``.

    Raises UsageError, which begins with ``where``, for what is neither directory nor URL, and for a
    URL with credentials in it: the manifest is for everybody to read.
    """
    if not text or "\0" in text or text != text.strip():
        raise UsageError(
            f"{where} is empty or has blanks at its ends", next_step=f"give {EXAMPLES}"
        )
    if not _SCHEME.match(text):
        if "::" in text:
            raise UsageError(
                f"{where}: '{text}' chains file systems, which is not supported",
                next_step=f"give {EXAMPLES}",
            )
        return StorePlace(text, base / text)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{where}: '{shown(text)}' is no URL", next_step=str(error)) from None
    if parts.scheme == "file":
        return _file_url(text, parts, where)
    if "::" in text or not (parts.netloc or parts.scheme == "memory"):
        raise UsageError(f"{where}: '{shown(text)}' names no host", next_step=f"give {EXAMPLES}")
    if _has_user(parts) or parts.query or parts.fragment:
        raise UsageError(
            f"{where}: '{shown(text)}' is given with a user, a password, a query or a fragment; a "
            "manifest is for everybody to read, and files are found by adding their name",
            next_step="leave them out: ~/.netrc (HTTP), the cloud's own environment variables and "
            "login, or FSSPEC_<PROTOCOL> variables hold credentials",
        )
    return StorePlace(text, url=text.rstrip("/"))


def _file_url(text: str, parts: SplitResult, where: str) -> StorePlace:
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise UsageError(
            f"{where}: '{shown(text)}' is not of the form file:///absolute/directory",
            next_step="write file:///absolute/directory, or a path relative to the manifest",
        )
    return StorePlace(text, Path(path))


def _has_user(parts: SplitResult) -> bool:
    user, at, _ = parts.netloc.rpartition("@")
    return bool(at) and (parts.scheme not in _CONTAINER_SCHEMES or ":" in user)


def shown(url: str) -> str:
    """``url`` without user, password, query and fragment, fit for messages and logs."""
    scheme, _, rest = url.partition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    user, at, bare = host.rpartition("@")
    if at and scheme.lower() in _CONTAINER_SCHEMES and ":" not in user:
        bare = host
    return f"{scheme}://{bare}{slash}{path}"


def scrub(text: str, longest: int = 300) -> str:
    """``text``, which others wrote, with each URL in it as :func:`shown` has it, on one line."""
    clean = _URL.sub(lambda found: shown(found.group()), " ".join(text.split()))
    return clean if len(clean) <= longest else f"{clean[: longest - 3]}..."
