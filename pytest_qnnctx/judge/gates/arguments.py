"""Checking the arguments of markers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from pytest_qnnctx.errors import UsageError


def bound(
    signature: str, form: Callable[..., None], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by name, defaults filled in from ``form``, a function of the same signature.

    Raises UsageError where they do not fit; ``signature`` is what the user is shown.
    """
    try:
        given = inspect.signature(form).bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"the marker's arguments do not fit: {error}", next_step=f"write it as {signature}"
        ) from None
    given.apply_defaults()
    return dict(given.arguments)


def nothing(signature: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """For a marker without arguments."""

    def form() -> None: ...

    return bound(signature, form, args, kwargs)


def number(
    signature: str, name: str, value: Any, *, above: float | None = None, least: float | None = None
) -> float:
    """``value`` as a finite number, more than ``above`` and at least ``least`` where given.

    Raises UsageError; True and False are refused, for they are mistakes here.
    """
    wanted = "a finite number"
    if above is not None:
        wanted += f" above {above:g}"
    if least is not None:
        wanted += f" of at least {least:g}"
    try:
        given = (
            float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        )
    except OverflowError:
        given = math.inf
    good = math.isfinite(given)
    good = good and (above is None or given > above) and (least is None or given >= least)
    if not good:
        raise UsageError(
            f"{name} must be {wanted}, not {value!r}",
            next_step=f"write it as {signature}",
        )
    return value if isinstance(value, int) else given
