"""The command line of netrun: those flags of ``qnn-net-run`` that we use, and a few of our own."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import exits
from .engine import MISBOUND, EngineOptions
from .exits import DoesNotFit, NetrunError, Usage
from .files import check_size, check_stems, clear_results, parse_input_list
from .graph import Graph, read_graph
from .guard import Ending, supervise
from .job import Job, private_directory, run_job
from .pack import INPUTS, read_head
from .probe import engine, is_emulated, library_directory, probe, qnn_version

_SEVERITY = {"error": 3, "warn": 2, "info": 1, "debug": 0, "verbose": 0}
_PERF = (
    "balanced", "burst", "default", "extreme_power_saver", "high_performance",
    "high_power_saver", "low_balanced", "low_power_saver", "power_saver",
    "sustained_high_performance",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run netrun; returns the exit code (see :mod:`.exits`). Errors are one line on stderr."""
    try:
        options = _parser().parse_args(argv)
        if options.probe:
            print(json.dumps(probe(_backend(options.backend)), indent=2))
            return exits.OK
        return _run(options)
    except NetrunError as error:
        _say(str(error))
        return error.code
    except OSError as error:
        _say(f"{type(error).__name__}: {error}")
        return exits.INTERNAL


def _run(options: argparse.Namespace) -> int:
    output_dir: Path = options.output_dir
    # First of all, so that a run that fails cannot leave an earlier one's outputs behind.
    output_dir.mkdir(parents=True, exist_ok=True)
    _clear(options)
    job = _job(options)
    found: dict[str, str | None] = {}

    def meanwhile() -> None:
        # Done while the child imports numpy: on two cores it costs nothing.
        found["qnn"] = qnn_version(library_directory(job.engine.backend))
        found["engine"] = engine(found["qnn"])

    directory = private_directory()
    ending = Ending()
    try:
        ending = supervise(
            lambda phase: run_job(job, directory, phase),
            time_limit_s=options.time_limit,
            on_line=lambda line: _relay(line, job),
            meanwhile=meanwhile,
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if ending.code != exits.OK:
            _clear(options)
    emulated = is_emulated(os.uname().machine)
    if ending.code != exits.OK:
        place = f" {exits.EMULATED}" if emulated else ""
        _say(f"{ending.error} ({job.binary.name}, graph {job.graph.name}{place})")
        return ending.code
    if options.timings:
        times = {**ending.result, "emulated": emulated, "qnn_version": found["qnn"]}
        _write_json(options.timings, {**times, "engine": found["engine"]})
    return exits.OK


def _relay(line: str, job: Job) -> NetrunError | None:
    """Show a line of the runtime's; an error that is returned ends the run."""
    if not ("[W:onnxruntime" in line and job.engine.severity > _SEVERITY["warn"]):
        print(line, file=sys.stderr, flush=True)
    if MISBOUND in line:
        return DoesNotFit("the names of the graph's inputs and outputs are not the binary's")
    return None


def _job(options: argparse.Namespace) -> Job:
    """What is to be run, with all that can be checked before the runtime is loaded."""
    binary: Path | None = options.retrieve_context
    if binary is None:
        raise Usage("--retrieve_context is missing")
    if not binary.is_file():
        raise Usage(f"--retrieve_context {binary}: no such file")
    sources = [options.input_list, options.input_pack, options.load_only or None]
    packed_load = options.load_only and options.input_pack and not options.input_list
    if not packed_load and sum(source is not None for source in sources) != 1:
        raise Usage("give one of --input_list, --input_pack and --load_only")
    graph, samples = _graph_and_samples(options, binary)
    lines: tuple[dict[str, Path], ...] = ()
    kept = graph.outputs
    if options.input_list:
        try:
            text = options.input_list.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise Usage(f"--input_list {options.input_list}: {error}") from error
        listed = parse_input_list(text, graph)
        lines, kept, samples = listed.lines, listed.outputs, len(listed.lines)
        for line in lines:
            for tensor in graph.inputs:
                check_size(line[tensor.name], tensor, native=options.use_native_input_files)
    if options.load_only:
        samples = 0
    elif not samples:
        raise Usage("there are no samples to run; give --load_only if that is meant")
    if not options.output_pack:
        check_stems(kept)
    wanted = samples if options.num_inferences is None else options.num_inferences
    return Job(
        binary=binary,
        graph=graph,
        engine=_engine_options(options),
        output_dir=options.output_dir,
        kept=kept,
        samples=samples,
        inferences=wanted if samples else 0,
        lines=lines,
        input_pack=options.input_pack,
        output_pack=options.output_pack,
        native_inputs=options.use_native_input_files,
        native_outputs=options.use_native_output_files,
        warm_load=options.warm_load,
    )


def _graph_and_samples(options: argparse.Namespace, binary: Path) -> tuple[Graph, int]:
    """The graph, from --io or the pack or the binary, and how many samples a pack holds."""
    if not options.input_pack:
        return read_graph(options.io, binary, options.graph), 0
    if options.use_native_input_files:
        raise Usage("a pack holds native values; leave out --use_native_input_files")
    graph, samples, _ = read_head(options.input_pack, INPUTS)
    if options.graph not in {None, graph.name}:
        raise Usage(f"the pack is for graph {graph.name}, not for {options.graph}")
    if options.io and read_graph(options.io, binary, options.graph) != graph:
        raise Usage("--io and --input_pack describe different graphs")
    return graph, samples


def _engine_options(options: argparse.Namespace) -> EngineOptions:
    provider = {}
    if options.perf_profile:
        provider["htp_performance_mode"] = options.perf_profile
    if options.profiling_level:
        provider["profiling_level"] = options.profiling_level
        provider["profiling_file_path"] = str(options.output_dir / "qnn-profiling-data_0.csv")
    return EngineOptions(_backend(options.backend), _SEVERITY[options.log_level], provider)


def _backend(given: str | None) -> Path | None:
    """A path to another libQnnHtp.so; a bare name means the one that comes with the package."""
    if given is None or "/" not in given:
        return None
    if not Path(given).is_file():
        raise Usage(f"--backend {given}: no such file")
    return Path(given).resolve()


def _clear(options: argparse.Namespace) -> None:
    clear_results(options.output_dir)
    for path in (options.output_pack, options.timings):
        if path is not None:
            path.unlink(missing_ok=True)


def _write_json(path: Path, data: dict[str, Any]) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(json.dumps(data) + "\n", encoding="utf-8")
    partial.replace(path)


def _say(text: str) -> None:
    print(f"netrun: error: {' '.join(text.split())}", file=sys.stderr, flush=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Usage(message)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds above 0")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="netrun",
        allow_abbrev=False,
        description="Load a QNN HTP context binary with onnxruntime-qnn and run it.",
        epilog="Exit codes: 0 done, 1 internal error, 2 usage, 3 context refused, 4 input does not "
        "fit, 5 time limit, 6 package missing, 7 graph did not run, 128+N ended by signal N.",
    )
    add = parser.add_argument
    add("--retrieve_context", type=Path, metavar="FILE", help="the context binary")
    add("--backend", metavar="LIB", help="path of another libQnnHtp.so than the package's")
    add("--input_list", type=Path, metavar="FILE", help="one inference a line: files or name:=file")
    add("--output_dir", type=Path, default=Path("output"), metavar="DIR", help="default: ./output")
    add("--use_native_input_files", action="store_true", help="inputs are not float32 but native")
    add("--use_native_output_files", action="store_true", help="write native outputs")
    add("--profiling_level", choices=("basic", "detailed"))
    add("--num_inferences", type=_count, metavar="N", help="in total, going round the inputs")
    add("--perf_profile", choices=_PERF)
    add("--log_level", choices=tuple(_SEVERITY), default="warn")
    add("--graph", metavar="NAME", help="which graph of the binary")
    add("--io", type=Path, metavar="JSON", help="the graph's inputs and outputs")
    add("--input_pack", type=Path, metavar="FILE", help="all inputs in one file")
    add("--output_pack", type=Path, metavar="FILE", help="write all outputs to one file")
    add("--load_only", action="store_true", help="load the context and run nothing")
    add("--warm_load", action="store_true", help="load the context twice")
    add("--timings", type=Path, metavar="JSON", help="write load and inference times")
    add("--time_limit", type=_seconds, metavar="SECONDS", help="end the runtime after that")
    add("--probe", action="store_true", help="say what this machine and its runtime are")
    return parser
