"""ONNX Runtime with Qualcomm's plugin: one context, loaded and run. Only used in the child."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .exits import DoesNotFit, NotInstalled, Refused, RunFailed
from .graph import Graph

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

PROVIDER = "QNNExecutionProvider"
#: Said by the plugin when the names in the model are not the binary's; it then binds by position.
MISBOUND = "falling back to positional name aliasing"
_WRONG_SIZE = "data size does not match"
_WARNING = 2


@dataclass(frozen=True)
class EngineOptions:
    """``backend`` is another libQnnHtp.so; ``severity`` ONNX Runtime's (0 verbose .. 3 error)."""

    backend: Path | None = None
    severity: int = _WARNING
    provider: Mapping[str, str] = field(default_factory=dict)


class Engine:
    """The plugin, registered in this process. Making one imports numpy and ONNX Runtime.

    Raises NotInstalled where a package is missing.
    """

    def __init__(self, options: EngineOptions) -> None:
        # OpenBLAS would start a thread a core, which nothing here uses.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            import onnxruntime
            import onnxruntime_qnn
        except ImportError as error:
            raise NotInstalled(
                f"{error}; install onnxruntime-qnn and onnxruntime for this Python"
            ) from error
        self._ort: Any = onnxruntime
        self._options = options
        self._backend = str(options.backend or onnxruntime_qnn.get_qnn_htp_path())
        _find_skels(Path(self._backend).parent)
        # The warning that names were bound by position must never be silenced.
        onnxruntime.set_default_logger_severity(min(options.severity, _WARNING))
        onnxruntime.register_execution_provider_library(
            PROVIDER, onnxruntime_qnn.get_library_path()
        )

    def load(self, model: Path, graph: Graph) -> Context:
        """Create a context from the wrapper ``model``. Raises Refused with the runtime's words."""
        ort = self._ort
        devices = [each for each in ort.get_ep_devices() if each.ep_name == PROVIDER]
        if not devices:
            raise NotInstalled("onnxruntime-qnn offers no device on this machine")
        npu = ort.OrtHardwareDeviceType.NPU
        device = next((each for each in devices if each.device.type == npu), devices[0])
        options = ort.SessionOptions()
        options.log_severity_level = min(self._options.severity, _WARNING)
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        options.add_provider_for_devices(
            [device], {"backend_path": self._backend, **self._options.provider}
        )
        try:
            session = ort.InferenceSession(str(model), sess_options=options, enable_fallback=0)
        except Exception as error:
            raise Refused(f"the runtime refused the context: {_one_line(error)}") from error
        session.disable_fallback()
        if PROVIDER not in session.get_providers():
            raise Refused(f"the session runs on {session.get_providers()}, not on {PROVIDER}")
        return Context(session, graph)


class Context:
    """A loaded context."""

    def __init__(self, session: Any, graph: Graph) -> None:
        self._session = session
        self._graph = graph
        self._outputs = [tensor.name for tensor in graph.outputs]

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """One inference: native values in, native values out, in the graph's order."""
        try:
            values: list[Array] = self._session.run(self._outputs, inputs)
        except Exception as error:
            text = f"the graph did not run: {_one_line(error)}"
            raise (DoesNotFit if _WRONG_SIZE in text else RunFailed)(text) from error
        return values


def _find_skels(directory: Path) -> None:
    """Tell FastRPC where the skels lie that belong to these libraries (a list with ``;``)."""
    if any(directory.glob("libQnnHtpV*Skel.so")):
        system = "/usr/lib/dsp/cdsp;/usr/lib/rfsa/adsp;/usr/lib/dsp"
        os.environ.setdefault("ADSP_LIBRARY_PATH", f"{directory};{system}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
