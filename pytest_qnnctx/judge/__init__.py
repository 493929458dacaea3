"""Gates, task metrics, the FP32 reference and the statistics behind verdicts."""
