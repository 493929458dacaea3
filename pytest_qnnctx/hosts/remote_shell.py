"""The POSIX shell scripts by which a remote machine runs commands and copies files.

A script is written to the standard input of ``sh``, never into a command line: no login shell
reads it (fish and csh quote otherwise), nothing of it is seen in ``ps``, and it may be long. It is
one ``{ ... }``, so that the shell has read it whole before it runs any of it; what follows on the
standard input is the file to copy, or nothing: then its end means that the other side has given up
or is gone. dash, bash, mksh, busybox and toybox have what the scripts use.

What belongs to the script on either stream is between two marks, a line ``<token>-begin ...`` and a
last line ``<token>-end CODE``. Before the first may be what a login shell's files print.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_qnnctx.errors import UsageError

#: What a script ends with, instead of a number, where its directory does not exist.
NO_DIRECTORY = "no-directory"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Marks:
    """What encloses the output of one script; no output can hold it by accident."""

    token: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def begin(self) -> str:
        """How the first line begins."""
        return f"{self.token}-begin "

    @property
    def end(self) -> str:
        """How the last line begins; it need not begin at a line's start."""
        return f"{self.token}-end "


def remote_path(path: str) -> str:
    """``path`` as the scripts take it, which cannot be read as an option.

    Raises UsageError where it is empty, has a NUL, or begins with ``~``, which nobody expands.
    """
    if not path or "\0" in path:
        raise UsageError("a remote path is empty or has a NUL character", next_step="correct it")
    if path.startswith("~"):
        raise UsageError(
            f"'{path}': '~' is not expanded in a remote path",
            next_step="write the whole path, such as /home/me/work",
        )
    return path if path.startswith("/") else f"./{path}"


# The command gets a session and process group of its own where `setsid` exists. Without it the
# group that the SSH server made for this shell must do, and the shell ends with it.
# `watch` waits for the end of the standard input, and then ends the command.
_COMMAND = """\
{
unset CDPATH
exec 3<&0 </dev/null
printf '%s\\n' @BEGIN@
printf '%s\\n' @BEGIN@ >&2
finish() {
  printf '%s\\n' @END@"$1"
  printf '%s\\n' @END@"$1" >&4
}
exec 4>&2
@CHANGE@
setsid=$(command -v setsid)
(
  exec 3<&- 4>&-
@EXPORTS@
  exec ${setsid:+"$setsid" --} @COMMAND@
) &
job=$!
exec 2>/dev/null
group=$job
if [ -z "$setsid" ]; then
  group=
  read -r stat < "/proc/$$/stat"
  set -- ${stat##*) }
  [ "$3" = "$$" ] && group=$$
fi
over() {
  kill -KILL "$job"
  if [ -n "$group" ]; then kill -KILL "-$group" || kill -KILL -- "-$group"; fi
}
( read -r never <&3; over ) >/dev/null 4>&- &
watch=$!
wait "$job"
code=$?
[ "$group" = "$$" ] || over
kill -KILL "$watch"
finish "$code"
[ "$group" = "$$" ] && over
exit 0
}
"""
_CHANGE = """\
[ -d @DIRECTORY@ ] || { finish @NO_DIRECTORY@; exit 0; }
cd @DIRECTORY@ || { finish 126; exit 0; }"""


def command_script(
    marks: Marks, command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None
) -> str:
    """Runs ``command``; ends with its code, or NO_DIRECTORY.

    Raises UsageError for a variable that no shell has, and for a path as :func:`remote_path`.
    """
    change = ""
    if cwd is not None:
        directory = shlex.quote(remote_path(cwd))
        change = _fill(_CHANGE, DIRECTORY=directory, NO_DIRECTORY=NO_DIRECTORY)
    exports = []
    for variable, value in (env or {}).items():
        if not _VARIABLE.fullmatch(variable) or "\0" in value:
            raise UsageError(
                f"environment variable '{variable}': a shell has only names of letters, digits "
                "and '_', and no values with a NUL character",
                next_step="give it another name",
            )
        exports.append(f"  export {variable}={shlex.quote(value)}")
    return _fill(
        _COMMAND,
        BEGIN=shlex.quote(marks.begin),
        END=shlex.quote(marks.end),
        CHANGE=change,
        EXPORTS="\n".join(exports),
        COMMAND=shlex.join(command),
    )


# Where the connection is lost, `cat` sees an end like any other: the size tells. Nobody reads what
# the shell prints then, and that must not end it before the half copy is removed.
_PUSH = """\
{
unset CDPATH
umask 077
trap '' PIPE
target=@TARGET@ directory=@DIRECTORY@ copy=@COPY@
finish() {
  rm -f "$copy" </dev/null
  printf '%s\\n' @END@"$1"
  printf '%s\\n' @END@"$1" >&2
  exit 0
}
fail() {
  if [ -n "$1" ]; then printf '%s\\n' "$1" >&2; fi
  finish 1
}
refuse() {
  printf '%s\\n' @BEGIN@refused
  fail "$1"
}
printf '%s\\n' @BEGIN@ >&2
[ -d "$directory" ] || refuse "there is no directory '$directory'"
[ -d "$target" ] && refuse "'$target' is a directory"
printf '%s\\n' @BEGIN@ready
set -C
cat > "$copy" || fail ""
size=$(wc -c < "$copy")
[ "$size" -eq @SIZE@ ] || fail "only $size of @SIZE@ bytes came"
chmod @MODE@ "$copy" || fail ""
sync "$copy" 2>/dev/null || sync
mv -f "$copy" "$target" || fail ""
finish 0
}
"""


def push_script(marks: Marks, remote: str, size: int, mode: int) -> str:
    """Writes ``size`` bytes of its standard input to ``remote``, by a copy beside it and a rename.

    Ends with 0, or 1 and a reason on standard error; then there is no copy left.
    """
    target = remote_path(remote)
    directory = posixpath.dirname(target) or "/"
    return _fill(
        _PUSH,
        BEGIN=shlex.quote(marks.begin),
        END=shlex.quote(marks.end),
        TARGET=shlex.quote(target),
        DIRECTORY=shlex.quote(directory),
        COPY=shlex.quote(posixpath.join(directory, f".copying-{secrets.token_hex(8)}")),
        SIZE=str(size),
        MODE=f"{mode & 0o7777:04o}",
    )


_PULL = """\
{
unset CDPATH
exec </dev/null
source=@SOURCE@
finish() {
  printf '%s\\n' @END@"$1"
  printf '%s\\n' @END@"$1" >&2
  exit 0
}
printf '%s\\n' @BEGIN@ >&2
if [ -d "$source" ]; then
  printf '%s\\n' @BEGIN@tree
  tar -c -f - -C "$source" .
elif [ -f "$source" ]; then
  mode=$(stat -L -c %a "$source" 2>/dev/null)
  printf '%s\\n' @BEGIN@"file ${mode:-644}"
  cat "$source"
else
  if [ -e "$source" ]; then why="is neither a file nor a directory"; else why="does not exist"; fi
  printf '%s\\n' @BEGIN@none
  printf '%s\\n' "it $why" >&2
  finish 1
fi
finish "$?"
}
"""


def pull_script(marks: Marks, remote: str) -> str:
    """Writes ``remote`` to its standard output, after "file MODE", "tree" (a tar) or "none"."""
    return _fill(
        _PULL,
        BEGIN=shlex.quote(marks.begin),
        END=shlex.quote(marks.end),
        SOURCE=shlex.quote(remote_path(remote)),
    )


def _fill(template: str, **values: str) -> str:
    """Puts each value in its @PLACE@, once: a value that looks like a place stays as it is."""
    return re.sub(r"@([A-Z_]+)@", lambda place: values[place[1]], template)
