"""Making a file or a directory of what a script on a remote machine writes to its output."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, cast

from pytest_qnnctx.hosts.framed import KeptOutput
from pytest_qnnctx.hosts.shell_run import ShellRun
from pytest_qnnctx.hosts.tar_tree import unpack_tree

_CHUNK = 1 << 20


class ScriptOutput:
    """A script's output as a file to read from; ``buffer`` is where the run puts what comes."""

    def __init__(self, run: ShellRun, buffer: bytearray) -> None:
        self._run = run
        self._buffer = buffer

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        while not self._buffer and self._run.out.code is None:
            self._run.read()
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        return piece

    def finish(self) -> str:
        """Read the rest away; the script's code."""
        while self.read(_CHUNK):
            pass
        return self._run.finish()


def check_code(code: str, err: KeptOutput) -> None:
    """Raises OSError with what the script wrote to its standard error where ``code`` is not 0."""
    if code != "0":
        raise OSError(err.text().strip()[-2000:] or f"exit {code}")


def receive_file(stream: ScriptOutput, local: Path, mode: int, err: KeptOutput) -> None:
    """Write the stream to ``local``, by a copy beside it and a rename. Raises OSError."""
    handle, temporary = tempfile.mkstemp(prefix=".copying-", dir=local.parent)
    try:
        with os.fdopen(handle, "wb") as written:
            shutil.copyfileobj(cast(IO[bytes], stream), written, _CHUNK)
            check_code(stream.finish(), err)
            written.flush()
            os.fchmod(written.fileno(), mode)
            os.fsync(written.fileno())
        Path(temporary).replace(local)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def receive_tree(stream: ScriptOutput, local: Path, err: KeptOutput) -> None:
    """Unpack the stream, a tar, to the directory ``local``, whole or not at all. Raises OSError."""
    parent = Path(tempfile.mkdtemp(prefix=".copying-", dir=local.parent))
    try:
        unpack_tree(cast(IO[bytes], stream), parent / "tree")
        check_code(stream.finish(), err)
        (parent / "tree").rename(local)
    except TimeoutError:
        raise
    except OSError as error:
        said = err.text().strip()[-2000:]
        reason = error.strerror or str(error)
        raise OSError(f"{reason} ({said})" if said and said != reason else reason) from error
    finally:
        shutil.rmtree(parent, ignore_errors=True)
