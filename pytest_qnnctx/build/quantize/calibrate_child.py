"""The child process of :mod:`.calibrate`.

``python -m pytest_qnnctx.build.quantize.calibrate_child FILE``.

``FILE`` is a JSON request: ``mode`` ("quantize" or "ranges"), ``model``, ``samples`` (a .npz with
the arrays "0", "1" ... of ``inputs``, samples on the first axis) and ``output``. It exits 1, with
one line on stderr that begins ``calibrate:``, where the model is refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnnctx.process import die_with_parent

Array = npt.NDArray[np.generic]

#: Before this opset, ONNX's own DequantizeLinear has no axis.
_PER_CHANNEL_OPSET = 13


class _Reader:
    """ONNX Runtime's way to ask for samples: ``get_next`` until None, ``rewind`` to start over."""

    def __init__(self, samples: list[dict[str, Array]]) -> None:
        self._samples = samples
        self._left: Iterator[dict[str, Array]] = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)

    def rewind(self) -> None:
        self._left = iter(self._samples)


def _samples(request: Mapping[str, Any]) -> list[dict[str, Array]]:
    with np.load(request["samples"], allow_pickle=False) as archive:
        arrays = {name: archive[str(i)] for i, name in enumerate(request["inputs"])}
    count = len(next(iter(arrays.values())))
    return [{name: array[i] for name, array in arrays.items()} for i in range(count)]


def _quantize(request: Mapping[str, Any]) -> None:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
    from onnxruntime.quantization.execution_providers.qnn import (
        get_qnn_qdq_config,
        qnn_preprocess_model,
    )

    class Reader(_Reader, CalibrationDataReader):  # type: ignore[misc]
        pass

    output = Path(request["output"])
    prepared = output.with_name("preprocessed.onnx")
    plain = _without_metadata(Path(request["model"]))
    changed = qnn_preprocess_model(
        str(plain),
        str(prepared),
        save_as_external_data=Path(request["model"] + ".data").exists(),
        all_tensors_to_one_file=True,
        external_data_location="preprocessed.onnx.data",
    )
    source = str(prepared if changed else plain)
    wide = request["activation_bits"] == 16
    config = get_qnn_qdq_config(
        source,
        Reader(_samples(request)),
        activation_type=QuantType.QUInt16 if wide else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    opsets = onnx.load(source, load_external_data=False).opset_import
    if next(o.version for o in opsets if o.domain in ("", "ai.onnx")) < _PER_CHANNEL_OPSET:
        config.extra_options["UseQDQContribOps"] = True
    quantize(source, str(output), config)
    plain.unlink()


def _without_metadata(path: Path) -> Path:
    """A copy beside ``path`` without metadata: ``qnn_preprocess_model`` of 1.32 chokes on any."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    del model.metadata_props[:]
    plain = path.with_name("without_metadata.onnx")
    onnx.save(model, str(plain))
    return plain


def _ranges(request: Mapping[str, Any]) -> None:
    import onnx
    import onnxruntime as ort

    model = onnx.load(request["model"], load_external_data=False)
    tensors = request["tensors"]
    present = {info.name for info in (*model.graph.input, *model.graph.output)}
    for name in tensors:
        if name not in present:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    # Beside the model, so that its external data is found.
    widened = Path(request["model"]).with_name("all_outputs.onnx")
    onnx.save(model, str(widened))
    session = ort.InferenceSession(str(widened), providers=["CPUExecutionProvider"])
    asked = [name for name in tensors if name not in request["inputs"]]
    low, high = dict.fromkeys(tensors, np.inf), dict.fromkeys(tensors, -np.inf)
    for sample in _samples(request):
        values = dict(zip(asked, session.run(asked, sample) if asked else [], strict=True))
        for name in tensors:
            array = np.asarray(values.get(name, sample.get(name)), dtype=np.float64)
            if not np.isfinite(array).all():
                raise ValueError(f"tensor {name!r} becomes NaN or infinite")
            low[name] = min(low[name], float(array.min(initial=np.inf)))
            high[name] = max(high[name], float(array.max(initial=-np.inf)))
    widened.unlink()
    Path(request["output"]).write_text(json.dumps({n: [low[n], high[n]] for n in tensors}))


def main() -> int:
    """Read the request and do it."""
    die_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text())
    try:
        {"quantize": _quantize, "ranges": _ranges}[request["mode"]](request)
    except Exception as error:
        text = " ".join(str(error).split())
        print(f"calibrate: {type(error).__name__}: {text[:500]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
