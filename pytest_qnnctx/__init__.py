"""Decide whether a Qualcomm QNN HTP context binary may ship. Run it with ``pytest --board sim``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError
    from pytest_qnnctx.model import Artifact, Model, Target

__version__ = "0.1.0"
__all__ = [
    "Artifact",
    "InfrastructureError",
    "Model",
    "ProductFailure",
    "Target",
    "UsageError",
    "__version__",
]

_HOMES = {
    "Artifact": "model",
    "Model": "model",
    "Target": "model",
    "InfrastructureError": "errors",
    "ProductFailure": "errors",
    "UsageError": "errors",
}


def __getattr__(name: str) -> Any:
    """Import public names when first used: importing the package must cost nothing."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
