"""The child process that compiles one ONNX with Qualcomm's HTP compiler through ONNX Runtime.

``python -m pytest_qnnctx.build.ort_compile REQUEST.json``, where the request names ``model``,
``context`` (the EPContext ONNX to write; the binary lands beside it) and the provider's
``options``. It exits 0 when the context was written and 1 with one line on stderr when the model
was refused; whatever else happens to it is for the parent to tell.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pytest_qnnctx.process import die_with_parent

PROVIDER = "QNNExecutionProvider"


def compile_context(model: str, context: str, options: dict[str, str]) -> None:
    """Compile ``model`` to ``context``; a node that the NPU cannot take is an error."""
    import onnxruntime as ort
    import onnxruntime_qnn as qnn

    ort.register_execution_provider_library(PROVIDER, qnn.get_library_path())
    device = next(d for d in ort.get_ep_devices() if d.ep_name == PROVIDER)
    session = ort.SessionOptions()
    session.add_session_config_entry("ep.context_enable", "1")
    session.add_session_config_entry("ep.context_file_path", context)
    session.add_session_config_entry("ep.context_embed_mode", "0")
    session.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session.add_provider_for_devices([device], {"backend_path": qnn.get_qnn_htp_path(), **options})
    ort.InferenceSession(model, sess_options=session)


def main() -> int:
    """Read the request and compile."""
    die_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text())
    try:
        compile_context(request["model"], request["context"], request["options"])
    except Exception as error:
        print(f"ort_compile: refused: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
