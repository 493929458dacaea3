"""A quicker ``import onnx``, for tools that look at no tensor's values.

``onnx`` imports ``ml_dtypes`` for element types that numpy lacks, which takes over a second.
A module that merely names those types does for a tool that reads and writes graphs.
"""

from __future__ import annotations

import sys
from types import ModuleType


class _Names(ModuleType):
    """Any attribute is an element type of its own, without arithmetic."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        import numpy as np

        return np.dtype([(name, "u1")])


def use_quick_onnx() -> None:
    """To be called before ``onnx`` is imported, in a process that does nothing else."""
    sys.modules.setdefault("ml_dtypes", _Names("ml_dtypes"))
