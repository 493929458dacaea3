"""What reading a large context binary costs, against a small one.

Compiles two real context binaries with the vendor's compiler: 1x1 convolutions with 4096x4096
(500 MB: 30 of them, about half a minute and several GB of memory) and 1024x1024 weights (1 MB:
one). A small binary with bytes appended would not do: libQnnSystem refuses it. Then ``qnnctx
inspect`` reads them in turns, each time in a fresh process; the ratio of the median times is
printed, and the sum of the peak resident memory of that process and of the one that it reads the
file in. Of the 500 MB one's time, most is its sha256. A busy machine flatters the ratio: starting
two processes then takes longer.

    python bench/inspect_cost.py [--rounds 9] [--keep DIRECTORY]

``--keep`` leaves the binaries in DIRECTORY and takes those found there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 3.0
MEMORY_LIMIT = 1.1
#: Name -> (number of convolutions, channels). int8 weights: channels squared bytes each.
SIZES = {"small": (1, 1024), "large": (30, 4096)}

INSPECT = """
import json, resource, sys
from pytest_qnnctx.cli import main
status = main(["inspect", sys.argv[1], "--json"])
peak = sum(
    resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
)
print(json.dumps({"peak_kb": peak}), file=sys.stderr)
sys.exit(status)
"""


def compile_binary(target: Path, convolutions: int, channels: int) -> None:
    """Run in a process of its own: see ``__main__``."""
    import numpy as np
    import onnx
    import onnxruntime
    import onnxruntime_qnn
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value, name))
        return name

    def quantize(tensor: str, result: str) -> str:
        ends = [weight(f"{result}_s", np.array(0.05, np.float32))]
        ends.append(weight(f"{result}_z", np.array(128, np.uint8)))
        nodes.append(helper.make_node("QuantizeLinear", [tensor, *ends], [f"{result}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{result}_q", *ends], [result]))
        return result

    value = quantize("x", "x_in")
    for index in range(convolutions):
        name = f"w{index}"
        matrix = rng.integers(-100, 100, (channels, channels, 1, 1)).astype(np.int8)
        parts = [weight(name, matrix), weight(f"{name}_s", np.array(0.01, np.float32))]
        parts.append(weight(f"{name}_z", np.array(0, np.int8)))
        nodes.append(helper.make_node("DequantizeLinear", parts, [f"{name}_f"]))
        nodes.append(helper.make_node("Conv", [value, f"{name}_f"], [f"c{index}"]))
        value = quantize(f"c{index}", f"y{index}")
    shape = [1, channels, 4, 4]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    source = target.with_suffix(".onnx")
    onnx.save(model, source)

    onnxruntime.register_execution_provider_library(
        "QNNExecutionProvider", onnxruntime_qnn.get_library_path()
    )
    device = next(d for d in onnxruntime.get_ep_devices() if d.ep_name == "QNNExecutionProvider")
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_embed_mode", "0")
    settings.add_session_config_entry(
        "ep.context_file_path", str(target.with_name(f"{target.stem}_ctx.onnx"))
    )
    settings.add_provider_for_devices(
        [device],
        {
            "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
            "soc_model": "93",
            "htp_arch": "68",
        },
    )
    onnxruntime.InferenceSession(str(source), sess_options=settings)
    source.unlink()
    target.with_name(f"{target.stem}_ctx.onnx").unlink()
    target.with_name(f"{target.stem}_ctx_qnn.bin").replace(target)


def inspect(binary: Path) -> tuple[float, float]:
    """Seconds and MB of one ``qnnctx inspect``, which must have read all there is."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, str(binary)], capture_output=True, text=True, check=True
    )
    seconds = time.perf_counter() - started
    told = json.loads(done.stdout)
    assert (told["htp_arch"], len(told["graphs"])) == ("v68", 1), told
    return seconds, json.loads(done.stderr.splitlines()[-1])["peak_kb"] / 1000


def measure(directory: Path, rounds: int) -> int:
    binaries = {name: directory / f"{name}.bin" for name in SIZES}
    for name, (convolutions, channels) in SIZES.items():
        if not binaries[name].exists():
            command = [sys.executable, __file__, "--compile", str(binaries[name])]
            subprocess.run(
                [*command, str(convolutions), str(channels)], check=True, capture_output=True
            )
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in SIZES}
    for name in SIZES:
        inspect(binaries[name])  # fills the page cache
    for index in range(rounds):
        for name in SIZES if index % 2 else reversed(SIZES):
            taken[name].append(inspect(binaries[name]))
    seconds = {name: statistics.median(t for t, _ in taken[name]) for name in SIZES}
    peak = {name: max(mb for _, mb in taken[name]) for name in SIZES}
    ratio = seconds["large"] / seconds["small"]
    small, large = (binaries[name].stat().st_size / 1e6 for name in ("small", "large"))
    print(
        f"inspect {large:.0f} MB / {small:.0f} MB: {ratio:.2f} x (limit {LIMIT:g} x; medians of "
        f"{rounds}: {seconds['large']:.3f} s, {seconds['small']:.3f} s); peak memory "
        f"{peak['large']:.1f} MB against {peak['small']:.1f} MB (limit {MEMORY_LIMIT:g} x)"
    )
    return 0 if ratio <= LIMIT and peak["large"] <= MEMORY_LIMIT * peak["small"] else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--compile", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compile:
        target, convolutions, channels = arguments.compile
        compile_binary(Path(target), int(convolutions), int(channels))
        return 0
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        return measure(arguments.keep, arguments.rounds)
    with tempfile.TemporaryDirectory() as name:
        return measure(Path(name), arguments.rounds)


if __name__ == "__main__":
    sys.exit(main())
