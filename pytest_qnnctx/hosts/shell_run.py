"""One script that runs in the shell of a remote machine, over a channel of an SSH connection."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from pytest_qnnctx.hosts.framed import FramedStream
from pytest_qnnctx.hosts.remote_shell import Marks

if TYPE_CHECKING:
    import paramiko

_PIECE = 1 << 17
#: A call that is blocked within the SSH library is ended this long after its time limit.
_WATCHDOG_S = 5.0


class ConnectionGone(Exception):
    """The connection was lost, or does not move any more."""


class ShellEnded(Exception):
    """The remote shell ended without its last word, while the connection stands."""


class ShellRun:
    """A running script. Used as a context manager: its end ends the script as well.

    ``out`` and ``err`` are its two streams. Methods raise TimeoutError at the deadline (a moment
    of ``time.monotonic()``), ConnectionGone and ShellEnded.
    """

    def __init__(
        self,
        transport: paramiko.Transport,
        deadline: float,
        take_out: Callable[[bytes], object],
        take_err: Callable[[bytes], object],
    ) -> None:
        self.marks = Marks()
        self.out = FramedStream(self.marks, take_out)
        self.err = FramedStream(self.marks, take_err)
        self._transport = transport
        self._deadline = deadline
        self._channel: paramiko.Channel | None = None
        self._watchdog = threading.Timer(
            max(deadline - time.monotonic(), 0) + _WATCHDOG_S, transport.close
        )
        self._watchdog.daemon = True

    def __enter__(self) -> Self:
        self._watchdog.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._channel is not None:
            # The end of the script's standard input: it ends what it runs. Raises where the
            # connection is gone, which has been said already.
            with suppress(Exception):
                self._channel.close()
        self._watchdog.cancel()

    def start(self, script: str) -> None:
        """Start ``script`` and wait until its shell has read it."""
        import paramiko

        self._check_time()
        try:
            self._channel = self._transport.open_session(timeout=self._remaining())
            self._channel.settimeout(self._remaining())
            self._channel.exec_command("exec sh")
            self._channel.sendall(script.encode(errors="surrogateescape"))
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._failure(error) from error
        while self.out.head is None:
            self.read()

    def send(self, file: IO[bytes], size: int) -> bool:
        """Send ``size`` bytes of ``file`` to the script, and the end of its input.

        False where the file is shorter. Ends early where the script has ended.
        """
        import paramiko

        channel = self._open_channel()
        left = size
        while left and self.err.code is None:
            piece = file.read(min(_PIECE, left))
            if not piece:
                return False
            left -= len(piece)
            while piece and self.err.code is None:
                self._check_time()
                try:
                    channel.settimeout(self._remaining())
                    sent = channel.send(piece)
                except (paramiko.SSHException, OSError, EOFError) as error:
                    if isinstance(error, TimeoutError):
                        raise
                    sent = 0
                if not sent:
                    # Closed: what the script said before it ended is in the streams.
                    self.read()
                piece = piece[sent:]
            while self.err.code is None and (channel.recv_ready() or channel.recv_stderr_ready()):
                self.read()
        return True

    def end_input(self) -> None:
        """Tell the script that nothing more will come."""
        import paramiko

        if self.err.code is not None:
            return
        try:
            self._open_channel().shutdown_write()
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._failure(error) from error

    def finish(self) -> str:
        """Read both streams until the script's last words; returns its code."""
        while self.out.code is None or self.err.code is None:
            self.read()
        return self.out.code

    @property
    def noise(self) -> str:
        """What came before the script's own output: a login shell's, or why there is none."""
        return (self.out.noise + self.err.noise).decode(errors="replace").strip()

    def cancel(self, within_s: float) -> bool:
        """Let the script end what it runs; whether it has confirmed that in time."""
        if self._channel is None:
            return True
        self._deadline = time.monotonic() + within_s
        try:
            self.end_input()
            self.finish()
        except ShellEnded:
            return True
        except (TimeoutError, ConnectionGone):
            return False
        return True

    def _open_channel(self) -> paramiko.Channel:
        assert self._channel is not None, "start it first"
        return self._channel

    def _remaining(self) -> float:
        return max(self._deadline - time.monotonic(), 0.001)

    def _check_time(self) -> None:
        if time.monotonic() >= self._deadline:
            raise TimeoutError

    def read(self) -> None:
        """Read what is there of either stream, or wait for it."""
        self._check_time()
        channel = self._open_channel()
        # Closed is asked first: what came before the end is then there to be read.
        ended = channel.closed or channel.eof_received
        out, err = b"", b""
        try:
            if channel.recv_ready():
                out = channel.recv(_PIECE)
            if channel.recv_stderr_ready():
                err = channel.recv_stderr(_PIECE)
        except (OSError, EOFError) as error:
            # Taking bytes tells the other side that there is room again, which may fail.
            raise self._failure(error) from error
        self.out.feed(out)
        self.err.feed(err)
        if out or err:
            return
        if ended:
            raise self._failure(None)
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        poll.poll(self._remaining() * 1000)

    def _failure(self, error: BaseException | None) -> Exception:
        """Which of the three it is that ended the channel."""
        if time.monotonic() >= self._deadline and self._transport.is_active():
            return TimeoutError()
        # Where the connection breaks, its channels are closed a moment before it is.
        self._transport.join(0.5)
        if self._transport.is_active():
            return ShellEnded(str(error or ""))
        return ConnectionGone(str(error or ""))
