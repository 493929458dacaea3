"""What the acceptance of one model costs above a bare script that does the same work.

The model is PP-OCRv4 recognition (from the package rapidocr-onnxruntime), made static and quantized
once beforehand. The bare script compiles it, loads the binary and runs it on the same samples. The
acceptance does that through ``pytest --board sim``, with the gates about the file, but no task
metric against FP32, which the bare script does not compute either. Cold is with an empty cache,
warm the run after it. The cost is some 5 s a model, mostly imports in fresh processes, so the cold
ratio falls with the number of samples: 1.16x with ten, within the noise of 1x with twenty. Run it
where the package is installed with the extra ``test``:

    python bench/overhead.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

COLD_LIMIT, WARM_LIMIT = 1.10, 0.2
SHAPE = (1, 3, 48, 320)

BARE = """
import sys
import numpy as np
import onnxruntime as ort
import onnxruntime_qnn as qnn

model, context, inputs = sys.argv[1:]
ort.register_execution_provider_library("QNNExecutionProvider", qnn.get_library_path())
device = next(d for d in ort.get_ep_devices() if d.ep_name == "QNNExecutionProvider")
options = {"backend_path": qnn.get_qnn_htp_path(), "soc_model": "93", "htp_arch": "68",
           "vtcm_mb": "2", "htp_graph_finalization_optimization_mode": "3"}

def session(path, **entries):
    made = ort.SessionOptions()
    made.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for name, value in entries.items():
        made.add_session_config_entry("ep." + name, value)
    made.add_provider_for_devices([device], options)
    return ort.InferenceSession(path, sess_options=made)

session(model, context_enable="1", context_file_path=context, context_embed_mode="0")
loaded = session(context)
for sample in np.load(inputs)["x"]:
    loaded.run(None, {"x": sample})
"""

TEST = """
import numpy as np, pytest

@pytest.mark.qnn_model("model.onnx", name="recognition")
@pytest.mark.no_fp16
@pytest.mark.npu_only
@pytest.mark.max_vtcm_mb(2)
@pytest.mark.task_metric(lambda outputs, targets: 1.0, min=0.5)
def test_recognition(acceptance):
    acceptance.evaluate([({"x": sample}, 0) for sample in np.load("inputs.npz")["x"]])
"""


def prepare(folder: Path, samples: int) -> None:
    """The model as QDQ, its inputs, and the test."""
    import numpy as np

    from pytest_qnnctx.build.quantize.prepare import prepare as quantize
    from pytest_qnnctx.model import Model, Target

    spec = find_spec("rapidocr_onnxruntime")
    if spec is None or spec.origin is None:
        sys.exit("rapidocr-onnxruntime is not installed: pip install 'pytest-qnnctx[test]'")
    source = Path(spec.origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"
    inputs = np.random.default_rng(0).uniform(-1, 1, (samples, *SHAPE)).astype(np.float32)
    np.savez(folder / "inputs.npz", x=inputs)
    model = Model(source, input_shapes={"x": SHAPE}, calibration=[{"x": inputs[0]}])
    work = folder / "work"
    work.mkdir()
    target = Target("QCS6490", "v68", 93, 2, has_float=False)
    made = quantize(model, target, work, lambda line: None)
    shutil.copy(made.path, folder / "model.onnx")
    (folder / "test_recognition.py").write_text(TEST)
    (folder / "bare.py").write_text(BARE)
    (folder / "pytest.ini").write_text("[pytest]\n")


def timed(argv: list[str], folder: Path) -> float:
    """Seconds of one process; it must end well."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run(
        argv, check=False, cwd=folder, env=environ, capture_output=True, text=True
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{argv} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return seconds


def main() -> int:
    """Measure in turns, and print the two ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, arguments.samples)
        bare = [sys.executable, "bare.py", "model.onnx", "bare_ctx.onnx", "inputs.npz"]
        judge = [
            sys.executable,
            "-m",
            "pytest",
            "--board=sim",
            "-q",
            "-p",
            "no:hypothesispytest",
            "--qnnctx-cache-dir=cache",
        ]
        times: dict[str, list[float]] = {"bare": [], "cold": [], "warm": []}
        for _ in range(arguments.rounds):
            for left in folder.glob("bare_ctx*"):
                left.unlink()
            shutil.rmtree(folder / "cache", ignore_errors=True)
            times["bare"].append(timed(bare, folder))
            times["cold"].append(timed(judge, folder))
            times["warm"].append(timed(judge, folder))
    medians = {name: statistics.median(values) for name, values in times.items()}
    cold, warm = (medians[name] / medians["bare"] for name in ("cold", "warm"))
    more = medians["cold"] - medians["bare"]
    print(f"a cold acceptance took {more:.1f} s more than the bare script")
    print(json.dumps({name: [round(value, 2) for value in times[name]] for name in times}))
    print(f"overhead cold: {cold:.3f}x (limit {COLD_LIMIT}x); warm: {warm:.3f}x ({WARM_LIMIT}x)")
    return 0 if cold <= COLD_LIMIT and warm <= WARM_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
