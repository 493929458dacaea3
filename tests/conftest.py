"""What the whole suite shares."""

from __future__ import annotations

pytest_plugins = ["pytester"]
