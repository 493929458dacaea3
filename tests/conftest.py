"""What the whole suite shares."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent
# Any test may use the stand-in SDK.
sys.path.insert(0, str(HERE / "standin_sdk"))


def pytest_configure() -> None:
    """A job in the background is started with these ignored, and whatever it starts inherits it."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in defaults.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A running SSH server on the loopback (hosts/sshd_server.py: SshServer), one a worker.

    ``sshd.config_file`` knows it as ``buildbox``. A test that stops it starts one of its own.
    """
    spec = importlib.util.spec_from_file_location("sshd_server", HERE / "hosts" / "sshd_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if reason := module.why_not():
        pytest.skip(reason)
    server = module.SshServer(tmp_path_factory.mktemp("sshd"))
    server.start()
    yield server
    server.stop()
