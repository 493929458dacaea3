"""Our own runner: loads a context binary and runs it, as ``qnn-net-run`` does.

``python -m pytest_qnnctx.netrun --help``. This package stands alone: it can be copied to a board
(:mod:`.bundle`) that has Python, ``onnxruntime`` and ``onnxruntime-qnn`` and nothing else. So it
imports nothing of pytest_qnnctx but itself, with relative imports, since its name differs there.
"""
