"""A board's Target from its part number and HTP architecture."""

from __future__ import annotations

from pytest_qnnctx.model import Target
from pytest_qnnctx.parts import find_part


def canonical_soc(soc: str) -> str:
    """The name that the compiler writes into a binary: upper case, aliases resolved."""
    part = find_part(soc)
    return part.name if part else soc.upper()


def target_of(soc: str, htp_arch: str) -> Target:
    """What :mod:`pytest_qnnctx.parts` knows of ``soc``; all that it does not know is None."""
    part = find_part(soc)
    if part is None:
        return Target(soc.upper(), htp_arch)
    return Target(part.name, htp_arch, part.soc_model, part.vtcm_mb, part.has_float)
