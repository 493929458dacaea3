"""What an entry of boards.yaml means where it does not say."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def default_runner(transport: str) -> str:
    """Our own runner needs Python and ONNX Runtime beside it; a board has the SDK's tool."""
    return "netrun" if transport == "local" else "qnn-net-run"


def default_staging_dir(transport: str) -> str:
    """A directory of this user alone on this host; on a board the one that tmpfs usually holds."""
    if transport == "local":
        return str(Path(tempfile.gettempdir()).resolve() / f"qnnctx-{os.getuid()}")
    return "/tmp/qnnctx"
