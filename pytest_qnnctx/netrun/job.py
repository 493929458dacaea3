"""What the child does: load the context, run the inputs through it, write what comes out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .engine import Engine, EngineOptions
from .exits import CLOSING, LOADING, RUNNING, STARTING, DoesNotFit
from .graph import Graph, Tensor
from .guard import Phase
from .wrapper import wrap

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Job:
    """One run. Without ``lines`` and ``input_pack`` the context is only loaded.

    ``lines`` maps input name to file for each sample; ``kept`` are the outputs to write.
    ``inferences`` is the total, going round the samples; outputs are those of the first round.
    """

    binary: Path
    graph: Graph
    engine: EngineOptions
    output_dir: Path
    kept: tuple[Tensor, ...]
    samples: int = 0
    inferences: int = 0
    lines: tuple[Mapping[str, Path], ...] = ()
    input_pack: Path | None = None
    output_pack: Path | None = None
    native_inputs: bool = False
    native_outputs: bool = False
    warm_load: bool = False


def run_job(job: Job, directory: Path, phase: Phase) -> dict[str, Any]:
    """Do it, with the wrapper model in the private ``directory``. Returns the times in ms."""
    phase(STARTING)
    begun = perf_counter()
    engine = Engine(job.engine)
    start_ms = _since(begun)
    model = directory / "context.onnx"
    (directory / "context.bin").symlink_to(job.binary.resolve())
    model.write_bytes(wrap(job.graph, "context.bin"))

    phase(LOADING)
    begun = perf_counter()
    context = engine.load(model, job.graph)
    load_ms = _since(begun)
    warm_load_ms = None
    if job.warm_load:
        del context
        begun = perf_counter()
        context = engine.load(model, job.graph)
        warm_load_ms = _since(begun)

    phase(RUNNING)
    inference_ms = []
    with ExitStack() as stack:
        keep = _writer(job, stack)
        for index, inputs in enumerate(_inputs(job)):
            begun = perf_counter()
            outputs = context.run(inputs)
            inference_ms.append(_since(begun))
            if index < job.samples:
                keep(index, _named(job.graph, outputs))
    phase(CLOSING)
    del context
    return {
        "start_ms": start_ms,
        "load_ms": load_ms,
        "warm_load_ms": warm_load_ms,
        "inference_ms": inference_ms,
    }


def _since(begun: float) -> float:
    return (perf_counter() - begun) * 1000


def _inputs(job: Job) -> Iterator[dict[str, Array]]:
    """The native inputs of each inference, round after round."""
    from .files import read_input
    from .pack import INPUTS, read_pack

    left = job.inferences
    while left:
        if job.input_pack:
            samples: Iterator[dict[str, Array]] = read_pack(job.input_pack, INPUTS)
        else:
            samples = (
                {
                    tensor.name: read_input(line[tensor.name], tensor, native=job.native_inputs)
                    for tensor in job.graph.inputs
                }
                for line in job.lines
            )
        for sample in samples:
            if not left:
                return
            left -= 1
            yield sample


def _writer(job: Job, stack: ExitStack) -> Any:
    """A function that keeps the outputs of sample number n."""
    from .files import write_result
    from .pack import OUTPUTS, PackWriter

    if job.output_pack:
        count = min(job.samples, job.inferences)
        pack = stack.enter_context(PackWriter(job.output_pack, OUTPUTS, job.graph, count))
        return lambda index, values: pack.add(values)
    return lambda index, values: write_result(
        job.output_dir, index, job.kept, values, native=job.native_outputs
    )


def _named(graph: Graph, values: list[Array]) -> dict[str, Array]:
    """Outputs by name, after a look at their types and shapes."""
    for tensor, array in zip(graph.outputs, values, strict=True):
        if array.dtype.newbyteorder("<").str != tensor.storage or array.shape != tensor.shape:
            raise DoesNotFit(
                f"output {tensor} came out as {array.dtype} {list(array.shape)}: the description "
                "of the graph is not this binary's"
            )
    return {tensor.name: array for tensor, array in zip(graph.outputs, values, strict=True)}


def private_directory() -> Path:
    """A new directory that only this user can enter."""
    return Path(tempfile.mkdtemp(prefix=f"netrun-{os.getpid()}-"))
