"""Observing: run what the gates need, and no more, and keep it as Measurements."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_qnnctx.errors import ProductFailure
from pytest_qnnctx.judge.gate import Condition
from pytest_qnnctx.judge.measurements import (
    LatencySamples,
    LoadSamples,
    Measurements,
    Need,
    Outputs,
)

if TYPE_CHECKING:
    from pytest_qnnctx.binary.info import BinaryInfo
    from pytest_qnnctx.model import Array, Artifact, Model, Target
    from pytest_qnnctx.workbench import LeasedBoard, Workbench

#: Loads that a first look at a load time takes, beside the cold one (facts: the sign test).
FIRST_LOADS = 11
RUN_NEEDS = frozenset({Need.LOADS, Need.LATENCY, Need.OUTPUTS})


def observe_artifact(
    workbench: Workbench, model: Model, target: Target, *, require_hardware: bool
) -> Measurements:
    """Build ``model`` and read its binary. A ProductFailure becomes part of what was observed."""
    known = Measurements(target, require_hardware=require_hardware)
    try:
        known = replace(known, artifact=workbench.artifact(model, target))
        assert known.artifact is not None
        return replace(known, binary=workbench.read(known.artifact))
    except ProductFailure as failure:
        return replace(known, build_error=failure)


def observe_loads(
    leased: LeasedBoard, artifact: Artifact, binary: BinaryInfo, conditions: Sequence[Condition]
) -> LoadSamples:
    """Load times, each from a fresh process; more of them where a first look is too close."""
    from pytest_qnnctx.judge.gates.time_gates import loads_wanted

    cold = leased.execute(artifact, binary, ())
    samples: list[float] = []
    limits = [c.limits["ms"] for c in conditions if Need.LOADS in c.gate.needs(c.limits)]
    wanted = FIRST_LOADS
    while len(samples) < wanted:
        samples.append(leased.execute(artifact, binary, ()).load_ms)
        if len(samples) == wanted:
            wanted = max([wanted, *(loads_wanted(limit, tuple(samples)) for limit in limits)])
    return LoadSamples(cold.load_ms, tuple(samples), cold.recorded_at)


def observe_run(
    leased: LeasedBoard,
    artifact: Artifact,
    binary: BinaryInfo,
    conditions: Sequence[Condition],
    samples: Sequence[dict[str, Array]] | None,
) -> tuple[LatencySamples | None, tuple[dict[str, Array], ...]]:
    """Run the dataset, or zeros where there is none and only times are wanted.

    The first inference of the process is not counted among the times: it pays for what is set up
    on first use.
    """
    from pytest_qnnctx.judge.gates.time_gates import inferences_wanted

    wanted = [inferences_wanted(c.limits) for c in conditions if c.gate.name == "max_latency_ms"]
    fed = list(samples) if samples is not None else [_zeros(binary)]
    repeats = math.ceil((max(wanted) + 1) / len(fed)) if wanted else 1
    result = leased.execute(artifact, binary, fed, repeats=repeats)
    times = result.inference_ms[1:]
    inputs = "dataset" if samples is not None else "zeros"
    latency = LatencySamples(times, inputs, result.recorded_at) if wanted else None
    return latency, result.outputs if samples is not None else ()


def _zeros(binary: BinaryInfo) -> dict[str, Array]:
    import numpy as np

    from pytest_qnnctx.dataset import the_graph

    return {t.name: np.zeros(t.shape, np.float32) for t in the_graph(binary).inputs}


def observe_reference(
    workbench: Workbench,
    model: Model,
    artifact: Artifact,
    samples: Sequence[dict[str, Array]],
    outputs: Outputs,
) -> Outputs:
    """``outputs`` with those of the FP32 model on the host, or with the reason for their lack."""
    from pytest_qnnctx.judge.reference import reference_outputs

    source = model.reference
    if source is None:
        if _came_quantized(artifact):
            return replace(
                outputs,
                reference_missing=f"{model.path.name} is quantized already; give the FP32 model: "
                f'qnn_model("{model.path.name}", reference="...")',
            )
        source = model.path
    try:
        found = reference_outputs(
            source,
            samples,
            cache_dir=workbench.cache_dir / "references",
            model_sha256=_files_sha256(artifact),
            input_shapes=model.input_shapes,
        )
    except ProductFailure as error:
        why = f"the FP32 model did not run: {error.what}"
        return replace(outputs, reference_missing=why, reference_failed=why)
    return replace(outputs, reference=found)


def observe_quantized(
    workbench: Workbench,
    artifact: Artifact,
    samples: Sequence[dict[str, Array]],
    outputs: Outputs,
) -> Outputs:
    """``outputs`` with those of the quantized ONNX on the host's CPU, to find where a loss is."""
    from pytest_qnnctx.judge.reference import reference_outputs

    if artifact.quantized_model is None:
        return replace(outputs, quantized_missing="the toolchain keeps no quantized ONNX")
    try:
        found = reference_outputs(
            artifact.quantized_model,
            samples,
            cache_dir=workbench.cache_dir / "references",
            model_sha256=artifact.sha256,
            optimize=False,
        )
    except ProductFailure as error:
        return replace(outputs, quantized_missing=f"it did not run on the CPU: {error.what}")
    return replace(outputs, quantized=found)


def _came_quantized(artifact: Artifact) -> bool:
    use = artifact.provenance.encodings if artifact.provenance else None
    return use is not None and use.version == "QDQ"


def _files_sha256(artifact: Artifact) -> str:
    """One hash over all files that the artifact was made of, the reference model among them."""
    assert artifact.provenance is not None
    hashes = sorted(f"{role}={f['sha256']}" for role, f in artifact.provenance.files.items())
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()
