"""Which flags of the SDK's tools a build will use, settled before any of them works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_qnnctx.build.qairt.flags import CONVERTER, GENERATOR, QUANTIZER, ToolHelp
from pytest_qnnctx.errors import Finding, UsageError
from pytest_qnnctx.model import Model

_OPT_IN = "--qnnctx-float-fallback"


@dataclass(frozen=True)
class FlagPlan:
    """Per tool: what is meant -> this version's flag for it, for every flag that will be used.

    ``calibrate`` and ``float_fallback`` tell what the quantizer is given; ``calibration_missing``
    that it must be given one of the two and is not: an error where it is to run at all.
    """

    converter: Mapping[str, str]
    quantizer: Mapping[str, str]
    generator: Mapping[str, str]
    calibrate: bool = False
    float_fallback: bool = False
    calibration_missing: bool = False
    findings: tuple[Finding, ...] = field(default=())


def plan_flags(helps: Mapping[str, ToolHelp], model: Model, *, float_fallback: bool) -> FlagPlan:
    """The flags to build ``model`` with, from what each tool's help says.

    Raises InfrastructureError where a version lacks one.
    """
    calibrate = model.calibration is not None
    quantizer = helps[QUANTIZER]
    findings = []
    missing = quantizer.wants_calibration_or_fallback and not (calibrate or float_fallback)
    fallback = float_fallback
    if fallback and calibrate and quantizer.excludes_fallback_with_calibration:
        fallback = False
        message = (
            f"{QUANTIZER} of QAIRT {quantizer.version} takes calibration inputs or the float "
            f"fallback, not both: {model.name} is quantized from its calibration inputs"
        )
        findings.append(Finding("float_fallback_unused", model.name, message))
    elif fallback:
        message = (
            f"{QUANTIZER} was allowed ({_OPT_IN}) to leave ops of {model.name} in floating point"
        )
        step = "build without it before the binary ships"
        findings.append(Finding("float_fallback_allowed", model.name, message, step))
    return FlagPlan(
        converter=_flags(
            helps[CONVERTER],
            "network",
            "output",
            *(["overrides"] if model.encodings is not None else []),
        ),
        quantizer={
            **_flags(
                quantizer,
                "input",
                "output",
                *(["calibration", "activation_bits", "weight_bits"] if calibrate else []),
                *(["float_fallback"] if fallback else []),
            ),
            **_optional(quantizer, "bias_bits", *(["per_channel"] if calibrate else [])),
        },
        generator=_flags(helps[GENERATOR], "model", "backend", "dlc", "folder", "name", "config"),
        calibrate=calibrate,
        float_fallback=fallback,
        calibration_missing=missing,
        findings=tuple(findings),
    )


def calibration_needed(model: Model, version: str) -> UsageError:
    """The error for a quantizer that runs with calibration inputs or the float fallback only."""
    message = (
        f"{QUANTIZER} of QAIRT {version} must be given calibration inputs or be allowed to leave "
        f"ops in float, and {model.name} ({model.path.name}) comes with neither"
    )
    return UsageError(
        message,
        next_step="give the model calibration= inputs (some dozens; its encodings stay in force), "
        f"or opt in with {_OPT_IN}: tensors without an encoding are then left in floating point",
        findings=[Finding("calibration_needed", model.name, message)],
    )


def _flags(shown: ToolHelp, *meanings: str) -> dict[str, str]:
    return {meaning: shown.spelled(meaning) for meaning in meanings}


def _optional(shown: ToolHelp, *meanings: str) -> dict[str, str]:
    return {meaning: shown.spelled(meaning) for meaning in meanings if shown.has(meaning)}
