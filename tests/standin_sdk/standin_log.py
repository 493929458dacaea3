"""How the vendor's tools print: the converters' logger, and the C++ tools' prefix."""

from __future__ import annotations

import sys
import time
from datetime import datetime

_LEVELS = {"INFO": 235, "WARNING": 237, "ERROR": 240}
_BEGAN = time.monotonic()


def converter_line(message: str, level: str = "INFO") -> None:
    """``2025-10-29 05:56:30,769 - 235 - INFO - ...``: the number is the converters' own."""
    now = datetime.now()
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
    print(f"{stamp} - {_LEVELS[level]} - {level} - {message}", file=sys.stderr, flush=True)


def tool_line(message: str, level: str = "ERROR") -> None:
    """``     0.0ms [ ERROR ] ...``: time since the start, level in a bracket of seven."""
    bracket = {"ERROR": " ERROR ", "WARNING": "WARNING", "INFO": "  INFO "}[level]
    passed = (time.monotonic() - _BEGAN) * 1000
    print(f"{passed:8.1f}ms [{bracket}] {message}", flush=True)
