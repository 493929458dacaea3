"""The exit codes of netrun, and the errors that end it with them.

Where a signal ended the runtime, netrun exits with 128 + the signal's number.
"""

from __future__ import annotations

OK = 0
INTERNAL = 1
USAGE = 2
REFUSED = 3
DOES_NOT_FIT = 4
TIME_LIMIT = 5
NOT_INSTALLED = 6
RUN_FAILED = 7

#: What netrun was doing when it ended; part of the message about a crash.
STARTING = "starting the runtime"
LOADING = "loading the context"
RUNNING = "running the graph"
CLOSING = "closing the context"
#: Also part of that message, where the HTP is Qualcomm's emulator.
EMULATED = "on the emulator"


class NetrunError(Exception):
    """Ends netrun with one line on stderr; ``code`` is the exit code."""

    code = INTERNAL


class Usage(NetrunError):
    """The command line, or a file that it names, is no good."""

    code = USAGE


class Refused(NetrunError):
    """The runtime did not load the context."""

    code = REFUSED


class DoesNotFit(NetrunError):
    """An input does not fit the graph."""

    code = DOES_NOT_FIT


class NotInstalled(NetrunError):
    """A package that netrun needs is missing."""

    code = NOT_INSTALLED


class RunFailed(NetrunError):
    """The context was loaded, but the graph could not be run."""

    code = RUN_FAILED
