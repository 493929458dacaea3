"""From a model with encodings or calibration inputs to the quantized ONNX."""
