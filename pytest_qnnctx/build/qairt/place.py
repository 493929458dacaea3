"""Where a build's tools run: in its own directory here, or in one on a remote build host."""

from __future__ import annotations

import re
import shlex
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pytest_qnnctx.build.content_key import file_sha256
from pytest_qnnctx.errors import InfrastructureError, QnnctxError
from pytest_qnnctx.hosts.host import Completed, Host

#: Quick commands (making a directory, hashing a big file) must end within this many seconds.
_QUICK_S = 300.0
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Deadline:
    """The time that is left of a build."""

    def __init__(self, seconds: float, what: str) -> None:
        self._until, self._what, self._seconds = time.monotonic() + seconds, what, seconds

    def left(self) -> float:
        """Seconds, more than 0. Raises InfrastructureError where none are left."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise InfrastructureError(
                f"{self._what} was given up after {self._seconds:g} s",
                next_step="see whether the host is overloaded",
            )
        return left


class Place(Protocol):
    """A host and a directory on it that is private to one build. Raises InfrastructureError."""

    host: Host
    workdir: str

    def bring(self, file: Path, beside: Mapping[str, Path]) -> str:
        """The path there of ``file``; the files ``beside`` (by relative name) lie beside it."""
        ...

    def bring_folder(self, folder: Path) -> str:
        """The path there of a directory in the build's own: its name in ``workdir``."""
        ...

    def write(self, name: str, text: str) -> str:
        """Write a small file to ``workdir``; returns its path."""
        ...

    def fetch(self, there: str, local: Path) -> Path:
        """Bring a file from there to ``local``, checked by its hash."""
        ...

    def close(self) -> None:
        """Remove the directory, where it is not the build's own here."""
        ...


class LocalPlace:
    """The build's own directory on this machine; nothing is copied."""

    def __init__(self, host: Host, workdir: Path) -> None:
        self.host, self.workdir = host, str(workdir)

    def bring(self, file: Path, beside: Mapping[str, Path]) -> str:
        """The file's own path."""
        del beside
        return str(file.absolute())

    def bring_folder(self, folder: Path) -> str:
        """The folder's own path."""
        return str(folder.absolute())

    def write(self, name: str, text: str) -> str:
        """Write a small file."""
        path = Path(self.workdir, name)
        try:
            path.write_text(text)
        except OSError as error:
            raise InfrastructureError(
                f"cannot write {path}: {error.strerror or error}", next_step="check the disk"
            ) from None
        return str(path)

    def fetch(self, there: str, local: Path) -> Path:
        """The file itself, moved to ``local``."""
        return Path(there).replace(local) if Path(there) != local else local

    def close(self) -> None:
        """Nothing: the builder removes the directory."""


class RemotePlace:
    """A directory on a build host. Sources are kept there by sha256, and copied once.

    ``<home>/.cache/qnnctx/sources/<sha256>-<name>`` are the sources, checked each time and removed
    after 30 days without use; ``.cache/qnnctx/work/build-*`` are builds' directories, removed by
    the build, or by a later one where it was killed.
    """

    def __init__(self, host: Host, home: str, scratch: Path, deadline: Deadline) -> None:
        self.host, self._scratch, self._deadline = host, scratch, deadline
        self._cache = f"{home}/.cache/qnnctx"
        self._brought = 0
        done = self._run(
            f"""umask 077
cd -- {shlex.quote(home)} && mkdir -p .cache/qnnctx/sources .cache/qnnctx/work || exit 1
find .cache/qnnctx/work -mindepth 1 -maxdepth 1 -mmin +2880 -exec rm -rf {{}} +
find .cache/qnnctx/sources -type f -mmin +43200 -exec rm -f {{}} +
mktemp -d "$PWD/.cache/qnnctx/work/build-XXXXXXXX" """,
            "make a directory for the build",
        )
        self.workdir = done.stdout.strip()

    def bring(self, file: Path, beside: Mapping[str, Path]) -> str:
        """Copy what is not there yet, and lay the files out under their names."""
        self._brought += 1
        folder = f"{self.workdir}/sources-{self._brought}"
        self._lay(file, f"{folder}/{file.name}")
        for name, other in beside.items():
            self._lay(other, f"{folder}/{name}")
        return f"{folder}/{file.name}"

    def bring_folder(self, folder: Path) -> str:
        """Copy a directory as one archive, whose hash depends on names and content alone."""
        archive = self._scratch / f"{folder.name}.tar"
        with tarfile.open(archive, "w") as tar:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    info = tar.gettarinfo(path, path.relative_to(folder).as_posix())
                    info.mtime, info.mode = 0, 0o600
                    info.uid = info.gid = 0
                    info.uname = info.gname = ""
                    with path.open("rb") as content:
                        tar.addfile(info, content)
        source = self._keep(archive)
        archive.unlink()
        target = f"{self.workdir}/{folder.name}"
        self._run(
            f"mkdir -p -- {shlex.quote(target)} && "
            f"tar -xf {shlex.quote(source)} -C {shlex.quote(target)}",
            f"unpack {folder.name}",
        )
        return target

    def write(self, name: str, text: str) -> str:
        """Write a small file."""
        local = self._scratch / f"to-remote-{name}"
        local.write_text(text)
        path = f"{self.workdir}/{name}"
        self.host.push(local, path, timeout_s=self._deadline.left())
        local.unlink()
        return path

    def fetch(self, there: str, local: Path) -> Path:
        """Copy a file from there; its hash there and here must be the same."""
        done = self._run(f"sha256sum < {shlex.quote(there)}", f"hash {there}")
        wanted = done.stdout.split()[0] if done.stdout.split() else ""
        self.host.pull(there, local, timeout_s=self._deadline.left())
        got = file_sha256(local)
        if got != wanted:
            raise InfrastructureError(
                f"{self.host.name}: '{there}' has the sha256 {wanted[:16]} there and {got[:16]} "
                "after it was copied here",
                next_step="build again; where it happens again, check the network and the disks",
            )
        return local

    def close(self) -> None:
        """Remove the directory; where that fails, a later build removes it."""
        with suppress(QnnctxError):
            self.host.execute(["rm", "-rf", "--", self.workdir], timeout_s=_QUICK_S)

    def _lay(self, file: Path, target: str) -> None:
        # Copied, not linked: onnx refuses external data that is a link.
        source = self._keep(file)
        folder = target.rsplit("/", 1)[0]
        self._run(
            f"mkdir -p -- {shlex.quote(folder)} && "
            f"cp --reflink=auto -- {shlex.quote(source)} {shlex.quote(target)}",
            f"lay out {file.name}",
        )

    def _keep(self, file: Path) -> str:
        """The path of ``file`` among the sources there, copied where it is not there whole."""
        sha = file_sha256(file)
        name = _UNSAFE.sub("_", file.name)[-100:]
        path = f"{self._cache}/sources/{sha}-{name}"
        if not self._is_there(path, sha):
            self.host.push(file, path, timeout_s=self._deadline.left())
            if not self._is_there(path, sha):
                raise InfrastructureError(
                    f"{self.host.name}: '{file.name}' is not the same after it was copied to "
                    f"'{path}'",
                    next_step="see whether the disk there is full, and build again",
                )
        return path

    def _is_there(self, path: str, sha: str) -> bool:
        quoted = shlex.quote(path)
        done = self.host.execute(
            ["sh", "-c", f"[ -f {quoted} ] && touch {quoted} && sha256sum < {quoted}"],
            timeout_s=min(_QUICK_S, self._deadline.left()),
        )
        return done.returncode == 0 and done.stdout.split()[:1] == [sha]

    def _run(self, script: str, what: str) -> Completed:
        done = self.host.execute(
            ["sh", "-c", script], timeout_s=min(_QUICK_S, self._deadline.left())
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise InfrastructureError(
                f"{self.host.name}: could not {what}: {said or f'exit {done.returncode}'}",
                next_step="check that the home directory there is writable and has space",
            )
        return done
