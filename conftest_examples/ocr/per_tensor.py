"""Recognition quantized by the first recipe one finds: W8A8, one scale for a whole weight tensor.

It is here to be refused: see the README. A model that comes quantized already (from AIMET, ONNX
Runtime, ...) is judged like this one.
"""

from __future__ import annotations

from pathlib import Path

from lines import RECOGNITION, calibration_lines, model_path


def quantize_per_tensor(width: int, folder: Path) -> Path:
    """Write the QDQ model for lines of ``width`` pixels into ``folder``; returns its path."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    class Lines(CalibrationDataReader):
        """Hands out the calibration lines, one at a time."""

        def __init__(self) -> None:
            self.left = calibration_lines(width)

        def get_next(self) -> dict | None:
            return next(self.left, None)

    fixed, quantized = folder / "fixed.onnx", folder / f"recognition_{width}_per_tensor.onnx"
    _fix_width(width, fixed)
    config = get_qnn_qdq_config(
        fixed, Lines(), activation_type=QuantType.QUInt8, weight_type=QuantType.QUInt8
    )
    quantize(fixed, quantized, config)
    return quantized


def _fix_width(width: int, path: Path) -> None:
    """Give the input its fixed shape and let ONNX Runtime fold what is constant then."""
    import onnx
    import onnxruntime as ort
    from onnxruntime.tools.onnx_model_utils import make_input_shape_fixed

    model = onnx.load(str(model_path(RECOGNITION)))
    make_input_shape_fixed(model.graph, "x", [1, 3, 48, width])
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    onnx.shape_inference.infer_shapes_path(str(path), str(path))
