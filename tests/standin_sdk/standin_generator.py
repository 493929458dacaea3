"""The stand-in's ``qnn-context-binary-generator``, on the host and on the board."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from standin_compile import Compiled, Options, as_made_by, compile_model
from standin_config import ConfigError, Read, read_config
from standin_flags import CppFlag, WrongFlagError, cpp_help, parse_cpp, print_version
from standin_log import tool_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from standin_tools import Tool

NAME = "qnn-context-binary-generator"
FLAGS = (
    CppFlag("--model", "FILE", "Path to the <qnn_model_name.so> file; with --dlc_path "
            "libQnnModelDlc.so.", required=True),
    CppFlag("--backend", "FILE", "Path to a QNN backend .so library.", required=True),
    CppFlag("--binary_file", "VAL", "Name of the binary file, without its extension.",
            required=True),
    CppFlag("--dlc_path", "VAL", "Paths to DLC files, separated by commas."),
    CppFlag("--output_dir", "DIR", "The directory to save output to. Default: ./output."),
    CppFlag("--backend_binary", "VAL", "Name of the backend's own binary."),
    CppFlag("--config_file", "FILE", "Path to a JSON config file for backend extensions."),
    CppFlag("--log_level", "VAL", "error, warn, info, verbose or debug."),
    CppFlag("--profiling_level", "VAL", "basic or detailed."),
    CppFlag("--profiling_option", "VAL", "optrace."),
    CppFlag("--input_output_tensor_mem_type", "VAL", "raw or memhandle."),
    CppFlag("--enable_intermediate_outputs", "", "Make all tensors outputs."),
    CppFlag("--set_output_tensors", "VAL", "Tensors to make outputs."),
    CppFlag("--op_packages", "VAL", "Op packages and their interface providers."),
    CppFlag("--platform_options", "VAL", "Platform options, key:value;..."),
    CppFlag("--model_prefix", "VAL", "Function prefix in the model library."),
    CppFlag("--version", "", "Print the QNN SDK version."),
    CppFlag("--help", "", "Show this help message."),
)  # fmt: skip
_STAGES = (
    ("Graph Preparation Initializing", 268),
    ("Graph Optimizations", 603465),
    ("Post Graph Optimization", 18554),
    ("Graph Sequencing for Target", 100218),
    ("VTCM Allocation", 25607),
    ("Parallelization Optimization", 7322),
    ("Finalizing Graph Sequence", 9903),
    ("Completion", 551),
)


class Failed(Exception):
    """The tool ends with ``exit_status``; what there was to say is printed."""

    def __init__(self, exit_status: int, *lines: str) -> None:
        super().__init__(lines[0] if lines else "")
        for line in lines:
            tool_line(line)
        self.exit_status = exit_status


def run(tool: Tool) -> int:
    """Generate; the exit status is 0, 1, 11 (device), 14 (op validation), or a signal's."""
    try:
        flags = parse_cpp(tool.argv, FLAGS)
    except WrongFlagError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        print(cpp_help(NAME, _WHAT, FLAGS), file=sys.stderr)
        return 1
    if "--help" in flags or not tool.argv:
        print(cpp_help(NAME, _WHAT, FLAGS))
        return 0
    if "--version" in flags:
        print_version(NAME, tool.release.build_id, os.getpid())
        return 0
    try:
        return _generate(tool, flags)
    except Failed as failed:
        return failed.exit_status


_WHAT = "Tool that makes a QNN context binary from a model library or DLCs, for a backend."


def _generate(tool: Tool, flags: dict[str, str]) -> int:
    print(f"{NAME} pid:{os.getpid()}")
    if "--binary_file" not in flags:
        raise Failed(1, "Missing option: --binary_file")
    if not _libraries(tool, flags):
        return 0
    name, onnx = _model(tool, flags)
    try:
        config = read_config(tool, flags.get("--config_file", ""), name)
    except ConfigError as error:
        raise Failed(error.exit_status, *error.lines) from None
    _say_unknown(tool, config)
    if "--dlc_path" not in flags:
        _hold_to_name(tool, config)
    _said_failures(tool)
    with tempfile.TemporaryDirectory(prefix="standin_generator_") as scratch:
        compiled, floating = _compile(onnx, config.options, Path(scratch), tool)
    if compiled.binary is None:
        _refused(compiled.log, floating, config.options)
    assert compiled.binary is not None
    binary = as_made_by(compiled.binary, name, tool.release.build_id)
    _finalize_lines(tool, binary)
    _write(tool, flags, binary)
    return 1 if tool.has_quirk("nonzero_exit_with_binary") else 0


def _hold_to_name(tool: Tool, config: Read) -> None:
    """A wrong graph name is an error with a model library, and silent with a DLC (both public)."""
    if config.graph_names and not config.matched and not tool.has_quirk("ignores_graphs"):
        raise Failed(
            14,
            f"getQnnGraphConfigFromInfo() unable to find graphName:{config.graph_names[0]} in "
            "provided graphsConfigInfo object.",
            "getQnnGraphConfigFromInfo(...) expected MODEL_NO_ERROR, got "
            "MODEL_INVALID_ARGUMENT_ERROR",
            "Graph Compose failure",
        )


# --- what it is given ---


def _libraries(tool: Tool, flags: dict[str, str]) -> bool:
    """Whether it goes on. False: ends well and makes nothing, as without the SDK's environment."""
    backend = flags.get("--backend", "")
    model = flags.get("--model", "")
    if not backend:
        raise Failed(1, "Missing option: --backend")
    _open_library(tool, backend, "Unable to load backend.")
    if model.endswith("libQnnModelDlc.so") or "--dlc_path" not in flags:
        _open_library(tool, model, "Unable to load model.")
    if tool.on_board:
        own = os.path.realpath(Path(backend).parent)
        if own not in {"/usr/lib", *map(os.path.realpath, tool.libraries)}:
            raise Failed(
                1,
                "QnnDsp <E> libQnnHtpPrepare.so: cannot open shared object file: No such file or "
                "directory",
            )
        return True
    return str(tool.root / "lib" / tool.machine) in tool.libraries


def _open_library(tool: Tool, library: str, what: str) -> None:
    places = [Path(library)] if "/" in library else [Path(p) / library for p in tool.libraries]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise Failed(
            1,
            f"{what} dlerror(): {library}: cannot open shared object file: No such file or "
            "directory",
        )


def _model(tool: Tool, flags: dict[str, str]) -> tuple[str, bytes]:
    """The graph's name and the ONNX behind a DLC or a model library."""
    from standin_dlc import NotADlc, read_dlc
    from standin_library import NotALibrary, read_model_library

    if "--dlc_path" in flags:
        try:
            dlc = read_dlc(Path(flags["--dlc_path"]))
        except (NotADlc, OSError) as error:
            raise Failed(1, f"Failed to open DLC: {error}", "Graph Compose failure") from None
        return dlc.note.graph, dlc.onnx
    try:
        return read_model_library(Path(flags["--model"]), on_board=tool.on_board)
    except NotALibrary as error:
        raise Failed(1, f"Unable to load model. dlerror(): {error}") from None


def _say_unknown(tool: Tool, config: Read) -> None:
    for key in config.unknown:
        if tool.has_quirk("invalid_key_error"):
            tool_line(f"Invalid key: {key}")
        elif tool.has_quirk("unknown_key_warning"):
            tool_line(f"Unknown Key = {key}", "WARNING")


def _said_failures(tool: Tool) -> None:
    """Failures that a quirk asks for, in the words of public logs."""
    print(f"Starting stage: {_STAGES[0][0]}")
    print(f"Completed stage: {_STAGES[0][0]} ({_STAGES[0][1]} us)", flush=True)
    tool.die_if_told()
    if tool.has_quirk("op_too_big"):
        raise Failed(
            1,
            'initial_sequencer_dp.cc:149:ERROR:A single op, "q::ForceFormat_Crouton" (Op ID: '
            "1165b600001430), requires 0x2400000 bytes of TCM, which is greater than the TCM size "
            "of 0x800000!",
            "initial_sequencer_dp.cc:156:ERROR:The name of the failing op before optimization is: "
            '"q::QNN_InstanceNorm" (Op ID: 1430).',
            "QnnDsp <E> RouterHexagon graph prepare failed 13",
            "QnnDsp <E> Failed to finalize graph (id: 1) with err 1002",
            "Finalize Graph for Idx = 0 failed with error = 1002",
            "Graph Finalize failure",
        )
    if tool.has_quirk("memory_too_large"):
        raise Failed(
            1,
            "fa_alloc.cc:2425::ERROR:graph requires estimated allocation of 2741569 KB, limit is "
            "2097152 KB",
            "graph_prepare.cc:838::ERROR:error during serialize: memory usage too large",
            " <E> RouterX86 graph serialize to memory failed -1",
            " <E> Failed to finalize graph (id: 1) with err 1002",
            "Graph Finalize failure",
        )
    if named := tool.quirks.get("unsupported_op"):
        _validation_failed([("node_conv" if named is True else str(named), "Conv2d")])
        raise Failed(14, "Graph Compose failure")


# --- the work ---


def _compile(
    onnx: bytes, options: Options, scratch: Path, tool: Tool
) -> tuple[Compiled, Collection[tuple[str, str]]]:
    import onnx as onnx_package

    from pytest_qnnctx.build.onnx_graph import write_for_compiler

    given = scratch / "given.onnx"
    given.write_bytes(onnx)
    source = scratch / "model.onnx"
    names = write_for_compiler(given, source)
    nodes = onnx_package.load(str(source), load_external_data=False).graph.node
    floating = [(node.name, node.op_type) for node in nodes if node.name in names]
    if floating and options.htp_arch in (None, 68):
        # HTP v68 has no floating point: the real compiler aborts the process.
        _abort_on_float(floating)
    del tool
    return compile_model(source, options, scratch), floating


def _abort_on_float(floating: Collection[tuple[str, str]]) -> None:
    from standin_tools import end_by_signal

    tool_line("[4294967295] has incorrect Value 68, expected >= 73.")
    _validation_failed(floating)
    print("terminate called without an active exception", file=sys.stderr)
    end_by_signal(signal.SIGABRT)


def _validation_failed(ops: Collection[tuple[str, str]]) -> None:
    for name, kind in ops:
        tool_line(
            f"QnnDsp <E> validateNativeOps {name}:qti.aisw:{kind} htp op validator failed 3110"
        )
        tool_line("QnnDsp <E> QnnBackend_validateOpConfig failed 3110")
        tool_line(f"Failed to validate op {name} with error 0xc26")


def _refused(log: str, floating: Collection[tuple[str, str]], options: Options) -> None:
    from pytest_qnnctx.build.ort_diagnosis import plain_log, unsupported_nodes

    del floating, options
    ops = unsupported_nodes(plain_log(log))
    if ops:
        _validation_failed(ops)
        raise Failed(14, "Graph Compose failure")
    for line in plain_log(log).splitlines()[-20:]:
        tool_line(line)
    raise Failed(1, "Graph Finalize failure")


def _finalize_lines(tool: Tool, binary: bytes) -> None:
    """The stages' lines, with the spill that the binary itself tells."""
    for name, microseconds in _STAGES[1:]:
        print(f"Starting stage: {name}")
        if name == "Finalizing Graph Sequence" and not tool.has_quirk("no_ddr_block"):
            spill = _spill(binary)
            print("\n====== DDR bandwidth summary ======")
            print(f"spill_bytes={spill}\nfill_bytes={spill}")
            print(f"write_total_bytes=65536\nread_total_bytes={len(binary)}\n")
        print(f"Completed stage: {name} ({microseconds} us)")
    print(" <W> Logs will be sent to the system's default channel")
    sys.stdout.flush()


def _spill(binary: bytes) -> int:
    from pytest_qnnctx.binary.reader import read_binary

    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(binary)
        file.flush()
        return sum(graph.spill_fill_bytes or 0 for graph in read_binary(Path(file.name)).graphs)


def _write(tool: Tool, flags: dict[str, str], binary: bytes) -> None:
    folder = Path(flags.get("--output_dir", "./output"))
    # Always appended: m.bin becomes m.bin.bin. An absolute name leaves the directory alone.
    path = folder / (flags["--binary_file"] + ".bin")
    path.parent.mkdir(parents=True, exist_ok=True)
    if tool.has_quirk("empty_binary"):
        binary = b""
    if tool.has_quirk("truncated_binary"):
        binary = binary[: len(binary) // 2]
    path.write_bytes(binary)
