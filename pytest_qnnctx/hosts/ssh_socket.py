"""The stream below an SSH connection: a TCP socket that notices a dead peer, or a ProxyCommand."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress

#: Bytes that are not acknowledged for so long mean that the peer or the link is gone.
_DEAD_AFTER_S = 15
_KEEPALIVE_S = 5


def open_tcp(hostname: str, port: int, timeout_s: float) -> socket.socket:
    """A connection that breaks within about 15 s when the other side vanishes. Raises OSError."""
    opened = socket.create_connection((hostname, port), timeout=timeout_s)
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    ]
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_S),
        ("TCP_KEEPCNT", _DEAD_AFTER_S // _KEEPALIVE_S),
        # Without it the kernel sends again for a quarter of an hour before it gives up.
        ("TCP_USER_TIMEOUT", _DEAD_AFTER_S * 1000),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    for level, option, value in options:
        with suppress(OSError):
            opened.setsockopt(level, option, value)
    return opened


class ProxyProcess:
    """The user's ProxyCommand, run by a shell as ``ssh`` does; ``socket`` is its in- and output."""

    def __init__(self, command: str) -> None:
        self.socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )
        except BaseException:
            self.socket.close()
            self._errors.close()
            raise
        finally:
            theirs.close()

    def said(self) -> str:
        """The last of what it wrote to its standard error."""
        with suppress(OSError, ValueError):
            size = os.fstat(self._errors.fileno()).st_size
            tail = os.pread(self._errors.fileno(), 500, max(size - 500, 0))
            return tail.decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """End it and what it started; safe to call twice."""
        self.socket.close()
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.close()
