"""Quantize an FP32 model from sample inputs, with ONNX Runtime's quantizer set up for QNN.

The work is done in a child process (:mod:`.calibrate_child`): the quantizer logs through several
channels and needs memory for every tensor's range.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import BuildFailed, InfrastructureError
from pytest_qnnctx.process import run_child

if TYPE_CHECKING:
    from pytest_qnnctx.build.toolchain import Progress
    from pytest_qnnctx.model import Sample

_TIME_LIMIT_S = 3600.0


def quantize_with_calibration(
    model: Path,
    samples: Sequence[Sample],
    workdir: Path,
    *,
    name: str,
    progress: Progress,
    activation_bits: int = 8,
    time_limit_s: float = _TIME_LIMIT_S,
) -> Path:
    """Quantize ``model`` (FP32, fixed shapes); returns the QDQ ONNX in ``workdir``.

    Weights are 8 bits, signed, symmetric, one scale a channel; activations ``activation_bits``
    (8 or 16), unsigned, from the least to the greatest value seen. The same inputs give the same
    bytes. Raises BuildFailed, with the quantizer's output as its log, where it refuses the model.
    """
    output = workdir / "calibrated_qdq.onnx"
    request = {"mode": "quantize", "output": str(output), "activation_bits": activation_bits}
    job = _Job(model, samples, workdir, name, progress, time_limit_s)
    _run(request, job)
    return output


def observe_ranges(
    model: Path,
    samples: Sequence[Sample],
    tensors: Collection[str],
    workdir: Path,
    *,
    name: str,
    progress: Progress,
    time_limit_s: float = _TIME_LIMIT_S,
) -> Mapping[str, tuple[float, float]]:
    """The least and the greatest value of each of ``tensors`` over ``samples`` on the CPU."""
    output = workdir / "ranges.json"
    request = {"mode": "ranges", "output": str(output), "tensors": sorted(tensors)}
    _run(request, _Job(model, samples, workdir, name, progress, time_limit_s))
    ranges: dict[str, list[float]] = json.loads(output.read_text())
    return {tensor: (low, high) for tensor, (low, high) in ranges.items()}


@dataclass(frozen=True)
class _Job:
    model: Path
    samples: Sequence[Sample]
    workdir: Path
    name: str
    progress: Progress
    time_limit_s: float


def _run(request: dict[str, Any], job: _Job) -> None:
    scratch = job.workdir / "calibrate_scratch"
    scratch.mkdir(exist_ok=True)
    try:
        _run_in(scratch, request, job)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_in(scratch: Path, request: dict[str, Any], job: _Job) -> None:
    import numpy as np

    samples, name, progress = job.samples, job.name, job.progress
    inputs = list(samples[0])
    arrays = scratch / "samples.npz"
    stacked: dict[str, Any] = {
        str(index): np.stack([sample[tensor] for sample in samples])
        for index, tensor in enumerate(inputs)
    }
    np.savez(arrays, **stacked)
    ask = scratch / "request.json"
    ask.write_text(
        json.dumps({**request, "model": str(job.model), "samples": str(arrays), "inputs": inputs})
    )
    announced = [0]

    def tick(seconds: float) -> None:
        if int(seconds) // 10 > announced[0]:
            announced[0] = int(seconds) // 10
            progress(f"calibrating {name} with {len(samples)} samples, {seconds:.0f} s")

    progress(f"calibrating {name} with {len(samples)} samples")
    result = run_child(
        [sys.executable, "-P", "-m", "pytest_qnnctx.build.quantize.calibrate_child", str(ask)],
        time_limit_s=job.time_limit_s,
        env={"TMPDIR": str(scratch)},
        on_tick=tick,
    )
    log = result.stdout + result.stderr
    if result.timed_out:
        raise InfrastructureError(
            f"calibrating model {name!r}: {result.ending}",
            next_step="give fewer calibration samples",
        )
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.startswith("calibrate: ")]
        reason = lines[-1].removeprefix("calibrate: ") if lines else result.ending
        raise BuildFailed(
            f"model {name!r} could not be quantized from its calibration inputs: {reason}",
            next_step="check that the FP32 model runs on the CPU, or give AIMET encodings instead",
            log=log,
        )
