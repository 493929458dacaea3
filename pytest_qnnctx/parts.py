"""What is known of each SoC: the SDK's model number, HTP architecture, VTCM and float support.

Sources: 93 and v68 for QCS6490 and QCM6490 were measured with QNN 2.47 and 2.51, its 2 MB of VTCM
with 2.51 (the option string where ``vtcm_mb`` is unset; 2.47 writes 4 MB there, which
is no evidence of the part). The other rows are public tables of projects that drive the SDK
(ExecuTorch's ``qc_schema.py``, LiteRT's ``soc_table.h``). The SDK's number is *not* the kernel's
``soc_id`` (QCS6490: 93 against 498).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One SoC. ``vtcm_mb`` in MiB; ``has_float`` tells whether its HTP computes in FP16."""

    name: str
    soc_model: int
    htp_arch: str
    vtcm_mb: int
    has_float: bool
    aliases: tuple[str, ...] = ()


PARTS: tuple[Part, ...] = (
    Part("QCS6490", 93, "v68", 2, False, ("QCM6490",)),
    Part("SM7325", 35, "v68", 2, False),
    Part("SM8350", 30, "v68", 4, False),
    Part("SA8295", 39, "v68", 8, True, ("SA8295P",)),
    Part("SM8450", 36, "v69", 8, True),
    Part("SM8475", 42, "v69", 8, True),
    Part("SM8550", 43, "v73", 8, True, ("QCS8550", "QCM8550")),
    Part("SA8255", 52, "v73", 8, True),
    Part("QCS9100", 77, "v73", 8, True, ("QCS9075",)),
    Part("SM8650", 57, "v75", 8, True),
    Part("SM8750", 69, "v79", 8, True),
    Part("SM8850", 87, "v81", 8, True),
)


def find_part(soc: str) -> Part | None:
    """The part called ``soc`` (any case, its aliases included), or None where it is unknown."""
    wanted = soc.upper()
    for part in PARTS:
        if wanted == part.name or wanted in part.aliases:
            return part
    return None
