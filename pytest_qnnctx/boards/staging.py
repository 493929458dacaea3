"""Files on a board: a private directory for each session, and copies named by their bytes.

::

    <staging_dir>/by-sha256/<sha256>/<name>   a staged file; stays for later sessions
    <staging_dir>/work/<random>/              one session's own; removed when it closes

Everything here goes through a Transport as POSIX shell scripts whose arguments are passed apart
from their text, so that nothing in a path can be read as a command. dash, bash, mksh, busybox and
toybox have what they use. A copy appears by one rename after its hash was checked on the board;
sessions that stage the same file at once replace equal bytes by equal bytes.

What no session has used for a day (killed ones leave their directory) is removed when the next
session opens; a session marks its own directory, and each file that it stages, as used.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_qnnctx.boards.transport import Transport
from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.host import Completed

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SETUP_LIMIT_S = 60.0

_PREPARE = """
umask 077
root=$1 work=$2
for dir in "$root" "$root/by-sha256" "$root/work"; do
  [ -L "$dir" ] || [ -d "$dir" ] || mkdir -p "$dir" || exit 1
  if [ -L "$dir" ]; then echo "'$dir' is a symbolic link" >&2; exit 1; fi
  if [ ! -O "$dir" ]; then echo "'$dir' belongs to another user" >&2; exit 1; fi
  case $(ls -ld "$dir") in
    d???????w[!tT]*) echo "'$dir' can be written by every user" >&2; exit 1 ;;
    d*) ;;
    *) echo "'$dir' cannot be listed" >&2; exit 1 ;;
  esac
done
mkdir "$work" || exit 1
# Asked without descending first: below, a directory that another session removes meanwhile is no
# failure, and find tells it by the same exit status as an option that it does not know.
if find "$root" -mindepth 1 -maxdepth 0 -mtime +0 >/dev/null 2>&1; then
  for dir in "$root/by-sha256" "$root/work"; do
    find "$dir" -mindepth 1 -maxdepth 1 -mtime +0 -exec sh -c '
      rm -rf "$1" 2>/dev/null; [ ! -e "$1" ] || echo "$1 is unused and could not be removed"
    ' sh {} \\; 2>/dev/null
  done
else
  echo "find is missing or too simple there: unused files stay in $root"
fi
exit 0
"""

_DIGEST = """
digest() {
  if command -v sha256sum >/dev/null 2>&1; then sum=$(sha256sum <"$1")
  elif toybox sha256sum </dev/null >/dev/null 2>&1; then sum=$(toybox sha256sum <"$1")
  elif busybox sha256sum </dev/null >/dev/null 2>&1; then sum=$(busybox sha256sum <"$1")
  elif command -v python3 >/dev/null 2>&1; then sum=$(python3 -c '
import hashlib, sys
digest = hashlib.sha256()
for chunk in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
    digest.update(chunk)
print(digest.hexdigest())' <"$1")
  else echo "there is no sha256sum, toybox, busybox or python3 to hash with" >&2; exit 1
  fi || exit 1
  echo "${sum%% *}"
}
"""

#: Prints the hash of the staged file, or "absent". A link or anything else but a file is absent.
_FIND = (
    _DIGEST
    + """
umask 077
dir=$1 name=$2 work=$3
if [ ! -d "$work" ]; then echo "'$work' is gone" >&2; exit 1; fi
mkdir -p "$dir" && touch "$work" "$dir" || exit 1
if [ -f "$dir/$name" ] && [ ! -L "$dir/$name" ]; then digest "$dir/$name"; else echo absent; fi
"""
)

#: Prints the hash of the copy; renames it to its final path only where that is the right one.
_KEEP = (
    _DIGEST
    + """
copy=$1 final=$2 wanted=$3
sum=$(digest "$copy") || exit 1
if [ "$sum" = "$wanted" ]; then
  if [ -L "$final" ] || [ -d "$final" ]; then rm -rf "$final"; fi
  mv -f "$copy" "$final" || exit 1
else
  rm -f "$copy"
fi
echo "$sum"
"""
)


@dataclass(frozen=True)
class StagingArea:
    """``root`` (the board's staging_dir) as one session uses it.

    ``board`` is the board's name, ``workdir`` the session's own directory.
    """

    transport: Transport
    board: str
    root: str
    workdir: str

    def prepare(self) -> str:
        """Make ``workdir`` and remove what was unused for a day.

        Returns what could not be removed, as text. Raises InfrastructureError where ``root`` is a
        link, another user's, open for all to write, or cannot be made.
        """
        done = self._run(_PREPARE, self.root, self.workdir, timeout_s=_SETUP_LIMIT_S)
        if done.returncode != 0:
            raise InfrastructureError(
                f"board {self.board}: the staging directory '{self.root}' cannot be used: "
                f"{_said(done)}",
                next_step="set staging_dir in boards.yaml to a directory of the connecting user's "
                "own (on Android /data/local/tmp/qnnctx)",
            )
        return "\n".join(filter(None, (done.stdout.strip(), done.stderr.strip())))

    def remove(self) -> None:
        """Remove ``workdir``. Raises InfrastructureError where that fails."""
        done = self.transport.execute(("rm", "-rf", self.workdir), timeout_s=_SETUP_LIMIT_S)
        if done.returncode != 0:
            raise InfrastructureError(
                f"board {self.board}: '{self.workdir}' could not be removed: {_said(done)}",
                next_step="a session that opens a day later removes it; or remove it by hand",
            )

    def stage(self, local: Path, sha256: str, *, timeout_s: float) -> str:
        """Bring ``local``, whose bytes hash to ``sha256``, to the board; returns its path there.

        A file that is there already is hashed on the board each time; its name, size and time
        prove nothing. Raises InfrastructureError where the bytes on the board are not the right
        ones after the copy, and UsageError where ``sha256`` is none.
        """
        if not _SHA256.fullmatch(sha256):
            raise UsageError(
                f"board {self.board}: {sha256!r} is no sha256 of '{local}'",
                next_step="give 64 lower-case hex digits",
            )
        deadline = time.monotonic() + timeout_s
        directory = posixpath.join(self.root, "by-sha256", sha256)
        final = posixpath.join(directory, local.name)
        left = self._left(deadline, local.name)
        done = self._run(_FIND, directory, local.name, self.workdir, timeout_s=left)
        if self._sum(done, local.name) == sha256:
            return final
        if not local.is_file():
            raise InfrastructureError(
                f"board {self.board}: '{local}' is gone, so it cannot be staged",
                next_step="build it again; something else cleans the cache directory",
            )
        copy = posixpath.join(self.workdir, f"incoming-{secrets.token_hex(4)}")
        self.transport.push(local, copy, timeout_s=self._left(deadline, local.name))
        left = self._left(deadline, local.name)
        arrived = self._sum(self._run(_KEEP, copy, final, sha256, timeout_s=left), local.name)
        if arrived != sha256:
            raise _altered(self.board, local, sha256, arrived)
        return final

    def _left(self, deadline: float, name: str) -> float:
        seconds = deadline - time.monotonic()
        if not seconds > 0:  # NaN, too: it would never end
            raise InfrastructureError(
                f"board {self.board}: staging '{name}' did not end within its time limit",
                next_step="look at the link and the board's load, or allow more time",
            )
        return seconds

    def _sum(self, done: Completed, name: str) -> str:
        """The hash that a script printed, or "absent"."""
        printed = done.stdout.strip()
        if done.returncode != 0 or not (printed == "absent" or _SHA256.fullmatch(printed)):
            raise InfrastructureError(
                f"board {self.board}: staging '{name}' failed with exit {done.returncode}: "
                f"{_said(done)}",
                next_step="see whether the board rebooted and its staging directory has space",
            )
        return printed

    def _run(self, script: str, *args: str, timeout_s: float) -> Completed:
        command = ("sh", "-c", script, "qnnctx", *args)
        return self.transport.execute(command, timeout_s=timeout_s)


def _altered(board: str, local: Path, sha256: str, arrived: str) -> InfrastructureError:
    """Tell a file that changed on this host from a copy that was damaged on its way."""
    from pytest_qnnctx.build.content_key import file_sha256

    try:
        here = file_sha256(local)
    except OSError:
        here = "unreadable"
    if here != sha256:
        return InfrastructureError(
            f"'{local}' is not what was built and judged: its sha256 is {here}, not {sha256}; "
            f"it was not staged on board {board}",
            next_step="build it again; something altered the file on this host",
        )
    return InfrastructureError(
        f"board {board}: '{local.name}' was damaged on its way: its sha256 there is {arrived}, not "
        f"{sha256}; the copy was removed",
        next_step="check the board's memory, disk space and link, then run again",
    )


def _said(done: Completed) -> str:
    return (done.stderr.strip() or done.stdout.strip() or "no reason given")[-1000:]
