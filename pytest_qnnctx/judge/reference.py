"""What the FP32 model gives on the host's CPU, kept on disk by what went into it.

The same function runs the quantized ONNX on the CPU, to tell the loss of quantizing from that of
the backend. onnxruntime is imported only where nothing is kept yet.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import InfrastructureError, ProductFailure, UsageError
from pytest_qnnctx.samples import samples_sha256

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array, Sample

_FORMAT = 1

#: ONNX element types by what onnxruntime calls them.
_DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int8)": "int8", "tensor(int16)": "int16", "tensor(int32)": "int32",
    "tensor(int64)": "int64", "tensor(uint8)": "uint8", "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32", "tensor(uint64)": "uint64", "tensor(bool)": "bool",
}  # fmt: skip


def reference_outputs(
    onnx_path: Path,
    samples: Sequence[Sample],
    *,
    cache_dir: Path,
    model_sha256: str,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    threads: int = 1,
    optimize: bool = True,
) -> list[dict[str, Array]]:
    """One ``{output: float32 array}`` a sample, from onnxruntime's CPU provider or the cache.

    ``samples`` are ``{input: array}`` in the model's shapes (``input_shapes`` names those that fix
    a dynamic input; a sample of another shape is refused); their numbers are converted to the
    model's input types. ``model_sha256`` stands for the model with its external data.
    ``optimize=False`` switches onnxruntime's graph optimizations off, so that every
    QuantizeLinear/DequantizeLinear pair of a quantized model is computed as it is written.

    A file in ``cache_dir`` that is damaged is made anew. Raises UsageError where there are no
    samples, ProductFailure where onnxruntime cannot load or run the model (the caller reports the
    reference as missing), InfrastructureError where it is not installed or the cache cannot be
    written.
    """
    if not samples:
        raise UsageError(f"no samples to run {onnx_path.name} on")
    shapes = {name: list(shape) for name, shape in (input_shapes or {}).items()}
    identity = {
        "format": _FORMAT,
        "model": model_sha256,
        "samples": samples_sha256(samples),
        "onnxruntime": _onnxruntime_version(),
        "optimize": optimize,
        "input_shapes": dict(sorted(shapes.items())),
    }
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    kept = cache_dir / f"{key}.npz"
    found = _load(kept, len(samples))
    if found is None:
        found = _run(onnx_path, samples, shapes, threads=threads, optimize=optimize)
        _save(kept, found)
    return found


def _onnxruntime_version() -> str:
    try:
        return metadata.version("onnxruntime")
    except metadata.PackageNotFoundError:
        pass  # another distribution (onnxruntime-gpu and the like) may bring the module
    try:
        import onnxruntime
    except ImportError as error:
        raise InfrastructureError(
            f"onnxruntime cannot be imported: {error}", next_step="pip install onnxruntime"
        ) from error
    return str(onnxruntime.__version__)


def _run(
    onnx_path: Path,
    samples: Sequence[Sample],
    shapes: Mapping[str, Sequence[int]],
    *,
    threads: int,
    optimize: bool,
) -> list[dict[str, Array]]:
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise InfrastructureError(
            f"onnxruntime cannot be imported: {error}", next_step="pip install onnxruntime"
        ) from error

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised; its log would only repeat it
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(
            str(onnx_path), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's errors share no base class of their own
        raise ProductFailure(
            f"onnxruntime cannot load {onnx_path.name}: {_short(error)}",
            next_step="give qnn_model(..., reference=FILE) an FP32 model that onnxruntime runs",
        ) from error
    types = {i.name: i.type for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    outputs = []
    for index, sample in enumerate(samples):
        where = f"{onnx_path.name}, sample {index}"
        feeds = _feeds(sample, types, shapes, where)
        try:
            values = session.run(names, feeds)
        except Exception as error:
            raise ProductFailure(
                f"onnxruntime cannot run {where}: {_short(error)}",
                next_step="look at the shapes and types of the data",
            ) from error
        outputs.append(_as_float(names, values, where))
    return outputs


def _feeds(
    sample: Sample, types: Mapping[str, str], shapes: Mapping[str, Sequence[int]], where: str
) -> dict[str, Array]:
    import numpy as np

    if set(sample) != set(types):
        raise ProductFailure(
            f"{where}: the model's inputs are {', '.join(sorted(types))}, the data's "
            f"{', '.join(sorted(sample))}",
            next_step="name the data's inputs as the ONNX model does",
        )
    feeds = {}
    for name, type_name in types.items():
        if type_name not in _DTYPES:
            raise ProductFailure(f"{where}: input '{name}' is {type_name}, not numbers")
        array = np.asarray(sample[name])
        if name in shapes and list(array.shape) != list(shapes[name]):
            raise ProductFailure(
                f"{where}: input '{name}' has shape {list(array.shape)}, input_shapes says "
                f"{list(shapes[name])}"
            )
        with np.errstate(invalid="ignore"):
            converted = np.ascontiguousarray(array, dtype=_DTYPES[type_name])
        if converted.dtype.kind in "biu" and not np.array_equal(converted, array):
            raise ProductFailure(
                f"{where}: input '{name}' takes {type_name[7:-1]}, and the data ({array.dtype}) "
                "does not fit into it unchanged",
                next_step="convert the data to the model's input type",
            )
        feeds[name] = converted
    return feeds


def _as_float(names: Sequence[str], values: Sequence[Any], where: str) -> dict[str, Array]:
    import numpy as np

    for name, value in zip(names, values, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            raise ProductFailure(f"{where}: output '{name}' is no array of numbers")
    return {n: np.asarray(v, dtype=np.float32) for n, v in zip(names, values, strict=True)}


def _load(path: Path, count: int) -> list[dict[str, Array]] | None:
    """What is kept in ``path``, or None where it is not there or not whole."""
    import numpy as np

    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = json.loads(str(archive["names"]))
            if len(names) != count:
                return None
            return [
                {name: archive[f"s{i}_o{j}"] for j, name in enumerate(sample)}
                for i, sample in enumerate(names)
            ]
    except Exception:  # a damaged zip makes zipfile, zlib, struct or numpy raise what they like
        return None


def _save(path: Path, outputs: Sequence[Mapping[str, Array]]) -> None:
    """Write through a temporary name: who reads ``path`` finds all of it or nothing."""
    import numpy as np

    arrays: dict[str, Any] = {
        f"s{i}_o{j}": array
        for i, sample in enumerate(outputs)
        for j, array in enumerate(sample.values())
    }
    names = json.dumps([list(sample) for sample in outputs])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="unfinished-") as folder:
            unfinished = Path(folder) / path.name
            np.savez(unfinished, names=np.array(names), **arrays)
            unfinished.replace(path)
    except OSError as error:
        raise InfrastructureError(
            f"the FP32 reference cannot be kept in {path.parent}: {error}",
            next_step="make room there, or choose another --qnnctx-cache-dir",
        ) from error


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
