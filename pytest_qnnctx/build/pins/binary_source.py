"""Getting a pinned binary's bytes out of a store: a directory, or a URL through fsspec.

The bytes are hashed while they are copied, and what is not the pinned binary is never left behind.
Each thing that can go wrong has an error of its own; no message shows credentials of a URL.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pytest_qnnctx.build.pins.lfs import PULL, is_pointer
from pytest_qnnctx.build.pins.store_errors import explain, missing_package
from pytest_qnnctx.build.pins.store_place import EXAMPLES, StorePlace, shown
from pytest_qnnctx.errors import InfrastructureError, ProductFailure, QnnctxError, UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.build.pins.manifest import PinnedBinary
    from pytest_qnnctx.build.toolchain import Progress

#: Waited before each further try (seconds), where the store or the network failed.
RETRY_PAUSES_S = (0.5, 2.0)
#: A store that accepts no connection, or sends nothing, for this long (seconds) has failed.
_CONNECT_LIMIT_S, _SILENCE_LIMIT_S = 30.0, 60.0
_CHUNK = 1 << 20
_HEAD = 64


class MissingInStoreError(InfrastructureError):
    """The store is there, and the file is not in it."""


@dataclass(frozen=True)
class _Got:
    """What a copy gave: its size, its hash and its first bytes."""

    size: int
    sha256: str
    head: bytes

    def is_(self, binary: PinnedBinary) -> bool:
        return (self.size, self.sha256) == (binary.size_bytes, binary.sha256)


def fetch_binary(
    place: StorePlace,
    binary: PinnedBinary,
    to: Path,
    *,
    time_limit_s: float,
    progress: Progress,
    pauses_s: Sequence[float] = RETRY_PAUSES_S,
) -> None:
    """Copy ``binary`` from ``place`` to the new file ``to``.

    Raises ProductFailure where the store gives other bytes than are pinned; MissingInStoreError
    where it has no such file; InfrastructureError where it cannot be reached, denies the access,
    has a Git LFS pointer there, or takes longer than ``time_limit_s``, and where the package for
    its protocol is not installed; UsageError for an unknown protocol. What a network is to blame
    for is tried again after each of ``pauses_s``, and told.
    """
    fetch = _Fetch(place, binary, to, time.monotonic() + time_limit_s, progress)
    got = fetch.from_directory(place.directory) if place.directory else fetch.from_url(pauses_s)
    if not got.is_(binary):
        to.unlink(missing_ok=True)
        raise _other_bytes(place, binary, got)


def _other_bytes(place: StorePlace, binary: PinnedBinary, got: _Got) -> QnnctxError:
    where = shown_file(place, binary)
    if is_pointer(got.head):
        return InfrastructureError(
            f"{where} is a Git LFS pointer: the binary was not pulled", next_step=PULL
        )
    if place.url and got.head.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return InfrastructureError(
            f"the store gave a web page for {where}, as a login page does, not a binary",
            next_step="log in to the store (~/.netrc, or the FSSPEC_HTTP variable), and check its "
            "address in the manifest",
        )
    size = f"more than {binary.size_bytes}" if got.size > binary.size_bytes else f"{got.size}"
    return ProductFailure(
        f"{where} is not the binary that is pinned: it was replaced or damaged ({size} bytes, "
        f"sha256 {got.sha256[:12]}..., where {binary.size_bytes}, {binary.sha256[:12]}..., are "
        "pinned)",
        next_step="find out who changed it, and put the pinned one back; or delete it there, and "
        "publish it anew with qnnctx build --update-manifest",
    )


def shown_file(place: StorePlace, binary: PinnedBinary) -> str:
    """The path or URL of ``binary``, fit for messages."""
    address = place.address(binary.file or "")
    return shown(address) if place.url else f"'{address}'"


@dataclass(frozen=True)
class _Fetch:
    """One binary on its way from a store to the new file ``to``."""

    place: StorePlace
    binary: PinnedBinary
    to: Path
    deadline: float
    progress: Progress

    def from_directory(self, folder: Path) -> _Got:
        """Copy it; what is not as it should be is named."""
        path = folder / (self.binary.file or "")
        try:
            if not folder.is_dir():
                raise InfrastructureError(
                    f"the store '{folder}' is no directory, or not mounted here",
                    next_step="mount it, or correct `store` in the manifest",
                )
            if not path.exists():
                raise MissingInStoreError(
                    f"'{path}' is not in the store",
                    next_step="put it there, or pin it again: "
                    "qnnctx build MODEL --update-manifest --publish STORE",
                )
            if not path.is_file():
                raise InfrastructureError(f"'{path}' is no file", next_step="look at the store")
            with path.open("rb") as file:
                return self._copy(file, self.to)
        except OSError as error:
            raise InfrastructureError(
                f"cannot read '{path}': {error.strerror or error}",
                next_step="check the permissions of the store, and its disk",
            ) from error

    def from_url(self, pauses_s: Sequence[float]) -> _Got:
        """Try until the pinned bytes have come, or what failed would fail again."""
        where, tries = shown_file(self.place, self.binary), len(pauses_s) + 1
        got = None
        for attempt in range(tries):
            if attempt:
                time.sleep(min(pauses_s[attempt - 1], max(self.deadline - time.monotonic(), 0)))
            part = self.to.with_name(f"{self.to.name}.{attempt}")
            before = got
            try:
                got = _within(self.deadline, where, partial(self._download, part))
            except QnnctxError:
                raise
            except Exception as error:  # each file system behind fsspec raises kinds of its own
                trouble = explain(error, self.place.scheme, where)
                if trouble.missing:
                    raise MissingInStoreError(trouble.what, next_step=trouble.next_step) from None
                if not trouble.transient or attempt + 1 == tries:
                    tried = f" ({attempt + 1} tries)" if attempt else ""
                    raise InfrastructureError(
                        f"{trouble.what}{tried}", next_step=trouble.next_step
                    ) from None
                self.progress(f"{trouble.what}; trying again ({attempt + 2} of {tries})")
                continue
            if got.is_(self.binary):
                part.rename(self.to)
                return got
            part.unlink(missing_ok=True)
            if got == before:
                break  # twice the same: no accident of the network
            if attempt + 1 < tries:
                self.progress(f"{where} came with other bytes than are pinned; fetching it again")
        assert got is not None
        return got

    def _download(self, part: Path) -> _Got:
        filesystem, path = open_filesystem(
            self.place, self.binary.file or "", self.deadline - time.monotonic()
        )
        how: dict[str, Any] = {}
        if self.place.scheme in ("http", "https"):
            how = {"block_size": 0, "size": self.binary.size_bytes}  # one request, streamed
        with filesystem.open(path, "rb", **how) as file:
            return self._copy(file, part)

    def _copy(self, source: IO[bytes], to: Path) -> _Got:
        """Write ``source`` to ``to``; of what is too long, the excess is not read."""
        digest, size, head = hashlib.sha256(), 0, b""
        with _writing(to) as file:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                head = head if len(head) >= _HEAD else (head + chunk)[:_HEAD]
                if size > self.binary.size_bytes:
                    break
                _write(file, chunk, to)
                if time.monotonic() > self.deadline:
                    raise _too_slow(shown_file(self.place, self.binary))
        return _Got(size, digest.hexdigest(), head)


@contextmanager
def _writing(to: Path) -> Iterator[IO[bytes]]:
    try:
        file = to.open("xb")
    except OSError as error:
        raise _unwritable(to, error) from error
    try:
        with closing(file):
            yield file
    except BaseException:
        to.unlink(missing_ok=True)
        raise


def _write(file: IO[bytes], chunk: bytes, to: Path) -> None:
    """Apart from reading, so that a full disk here is not taken for the store's failure."""
    try:
        file.write(chunk)
    except OSError as error:
        raise _unwritable(to, error) from error


def _unwritable(to: Path, error: OSError) -> InfrastructureError:
    return InfrastructureError(
        f"cannot write '{to}': {error.strerror or error}",
        next_step="free some space, or choose another directory with --qnnctx-cache-dir",
    )


def _too_slow(what: str) -> InfrastructureError:
    return InfrastructureError(
        f"fetching {what} took longer than is allowed",
        next_step="look at the connection to the store",
    )


def open_filesystem(place: StorePlace, file: str, time_limit_s: float) -> tuple[Any, str]:
    """The fsspec file system of ``place``, and the path of ``file`` in it.

    Raises InfrastructureError where fsspec, or what it needs for the protocol, is not installed,
    UsageError for a protocol that it does not know; whatever the file system raises passes through.
    """
    try:
        import fsspec
        from fsspec.core import url_to_fs

        if place.scheme not in fsspec.available_protocols():
            raise UsageError(
                f"the store {place} has a protocol that fsspec does not know: {place.scheme}",
                next_step=f"correct `store` in the manifest: {EXAMPLES}",
            )
        options: dict[str, Any] = {}
        if place.scheme in ("http", "https"):
            options = _http_options(fsspec.config.conf, time_limit_s)
        filesystem, path = url_to_fs(place.address(file), **options)
    except ImportError as error:
        raise missing_package(place.scheme, error) from None
    return filesystem, path


def _http_options(configured: dict[str, Any], time_limit_s: float) -> dict[str, Any]:
    """Proxies and ~/.netrc count, and no transfer is cut off for being long.

    What FSSPEC_HTTP or fsspec's configuration files say of the client wins.
    """
    import aiohttp

    timeout = aiohttp.ClientTimeout(
        total=None,
        sock_connect=max(min(_CONNECT_LIMIT_S, time_limit_s), 0.1),
        sock_read=max(min(_SILENCE_LIMIT_S, time_limit_s), 0.1),
    )
    client: dict[str, Any] = {"trust_env": True, "timeout": timeout}
    for protocol in ("http", "https"):
        given = configured.get(protocol, {}).get("client_kwargs", {})
        client.update(given if isinstance(given, dict) else {})
    return {"client_kwargs": client, "skip_instance_cache": True}


def _within(deadline: float, where: str, work: Callable[[], _Got]) -> _Got:
    """Do ``work`` in a thread, and give it up at ``deadline``: not every protocol has a limit."""
    results: list[_Got] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again by the caller
            errors.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    while worker.is_alive() and time.monotonic() < deadline:
        worker.join(min(0.5, max(deadline - time.monotonic(), 0)))
    if errors:
        raise errors[0]
    if not results:
        raise _too_slow(where)
    return results[0]
