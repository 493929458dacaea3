"""Flags of the SDK's tools: how each version spells them, held against the tool's own ``--help``.

A flag that a version lacks is found before anything is built, not by what it leaves out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_qnnctx.errors import Finding, InfrastructureError

CONVERTER, QUANTIZER = "qairt-converter", "qairt-quantizer"
GENERATOR = "qnn-context-binary-generator"

#: (tool, what is meant) -> its spellings in the versions that are known, the newest first.
#: Sources: vendor documentation 80-63442-2 of 2025 and public scripts for 2.22 to 2.50.
SPELLINGS: Mapping[tuple[str, str], tuple[str, ...]] = {
    (CONVERTER, "network"): ("--input_network",),
    (CONVERTER, "output"): ("--output_path",),
    (CONVERTER, "overrides"): ("--quantization_overrides",),
    (QUANTIZER, "input"): ("--input_dlc",),
    (QUANTIZER, "output"): ("--output_dlc",),
    (QUANTIZER, "calibration"): ("--input_list",),
    (QUANTIZER, "float_fallback"): ("--enable_float_fallback", "--float_fallback"),
    (QUANTIZER, "activation_bits"): ("--act_bitwidth", "--act_bw"),
    (QUANTIZER, "weight_bits"): ("--weights_bitwidth", "--weight_bw"),
    (QUANTIZER, "bias_bits"): ("--bias_bitwidth", "--bias_bw"),
    (QUANTIZER, "per_channel"): ("--use_per_channel_quantization",),
    (GENERATOR, "model"): ("--model",),
    (GENERATOR, "backend"): ("--backend",),
    (GENERATOR, "dlc"): ("--dlc_path",),
    (GENERATOR, "folder"): ("--output_dir",),
    (GENERATOR, "name"): ("--binary_file",),
    (GENERATOR, "config"): ("--config_file",),
}

_FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
_MANDATORY = re.compile(r"\b(?:mandatory|required)\b", re.IGNORECASE)
_EITHER = re.compile(r"mutually exclusive|\bone of\b|\beither\b", re.IGNORECASE)
_EXCLUSIVE = re.compile(r"mutually exclusive|must not be (provided|given|used)", re.IGNORECASE)


@dataclass(frozen=True)
class ToolHelp:
    """What a tool's ``--help`` printed, and which SDK it belongs to."""

    tool: str
    version: str
    text: str

    @property
    def flags(self) -> frozenset[str]:
        """Every long flag that the text names."""
        return frozenset(_FLAG.findall(self.text))

    def has(self, meaning: str) -> bool:
        """Whether this version has a flag for ``meaning``."""
        return any(flag in self.flags for flag in SPELLINGS[(self.tool, meaning)])

    def spelled(self, meaning: str) -> str:
        """The flag by which this version means ``meaning``.

        Raises InfrastructureError that names the flag, the tool, its version and the nearest flag
        that it has.
        """
        known = SPELLINGS[(self.tool, meaning)]
        flags = self.flags
        for flag in known:
            if flag in flags:
                return flag
        near = difflib.get_close_matches(known[0], sorted(flags), n=1, cutoff=0.0)
        nearest = f"the nearest that it has is {near[0]}" if near else "its help names none"
        wanted = " or ".join(known)
        message = f"{self.tool} of QAIRT {self.version} has no flag {wanted}; {nearest}"
        raise InfrastructureError(
            message,
            next_step=f"see `{self.tool} --help`, and build with another version of the SDK",
            findings=[Finding("flag_missing", known[0], message)],
        )

    @property
    def wants_calibration_or_fallback(self) -> bool:
        """Whether it says that one of calibration and float fallback must be given."""
        return self.tool == QUANTIZER and wants_one(self.text)

    @property
    def excludes_fallback_with_calibration(self) -> bool:
        """Whether it says that the two cannot be given together."""
        return self.tool == QUANTIZER and _EXCLUSIVE.search(_one_line(self.text)) is not None


def wants_one(text: str) -> bool:
    """Whether ``text`` (help or a log) says that ``--input_list`` or the fallback is mandatory."""
    line = _one_line(text)
    places = (line[max(m.start() - 200, 0) : m.end() + 100] for m in _MANDATORY.finditer(line))
    return any(
        "input_list" in place and "float_fallback" in place and _EITHER.search(place)
        for place in places
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
