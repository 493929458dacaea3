"""Toolchain ``ort``: Qualcomm's HTP compiler as it comes with ``onnxruntime-qnn`` from PyPI."""

from __future__ import annotations

import json
import mmap
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from pytest_qnnctx.build.compiled_graph import float_ops, read_compiled_graphs
from pytest_qnnctx.build.encodings_check import encodings_use
from pytest_qnnctx.build.ort_diagnosis import diagnose, last_errors, plain_log
from pytest_qnnctx.build.toolchain import BuildProduct, BuildRequest, Progress, ToolchainId
from pytest_qnnctx.errors import BuildFailed, Finding, InfrastructureError, UsageError
from pytest_qnnctx.model import Model, Target
from pytest_qnnctx.parts import PARTS
from pytest_qnnctx.process import ChildResult, run_child

PACKAGE = "onnxruntime-qnn"
_BUILD_ID = re.compile(rb"v(\d+\.\d+\.\d+\.\d{6,})")
#: A compiler that fails with less free space than this (bytes) failed for the lack of it.
_LEAST_FREE_BYTES = 4 * 1024 * 1024
_OPTIMIZATION_LEVEL = 3
_INSTALL = "install it: pip install 'pytest-qnnctx[sim]' (x86-64 or aarch64 Linux, glibc 2.35+)"


class OrtToolchain:
    """Compiles QDQ ONNX, FP32 ONNX with AIMET encodings, or FP32 ONNX with calibration inputs."""

    name = "ort"

    def identify(self) -> ToolchainId:
        """The package's version and the QNN build id that its libraries carry.

        Raises InfrastructureError where the package is not installed.
        """
        try:
            package = version(PACKAGE)
            runtime = version("onnxruntime")
        except PackageNotFoundError as error:
            raise InfrastructureError(
                "toolchain 'ort' needs the package onnxruntime-qnn, which is not installed",
                next_step=_INSTALL,
            ) from error
        return ToolchainId(self.name, f"{package}+onnxruntime.{runtime}", qnn_build_id())

    def options(self, model: Model, target: Target) -> Mapping[str, str]:
        """The provider's options, and the versions of what quantizes the model before."""
        options = dict(self._provider_options(target))
        if model.encodings is not None or model.calibration is not None:
            options["onnx"] = version("onnx")
        return options

    def _provider_options(self, target: Target) -> dict[str, str]:
        if target.soc_model is None:
            known = ", ".join(part.name for part in PARTS)
            raise UsageError(
                f"toolchain 'ort' does not know the SDK's model number of SoC {target.soc}",
                next_step=f"correct the board's soc (known: {known}), or use another toolchain",
            )
        options = {
            "soc_model": str(target.soc_model),
            "htp_arch": target.htp_arch.removeprefix("v"),
            "htp_graph_finalization_optimization_mode": str(_OPTIMIZATION_LEVEL),
        }
        if target.vtcm_mb is not None:
            # Unset, the graph says 4 MB where the part has 2 (measured on QCS6490).
            options["vtcm_mb"] = str(target.vtcm_mb)
        return options

    def build(self, request: BuildRequest, progress: Progress) -> BuildProduct:
        """Quantize where asked, check the encodings, compile, and read what was compiled.

        Raises BuildFailed where the compiler refuses the model (findings name the nodes) or
        crashes on it, ProductFailure where encodings and model do not fit, InfrastructureError
        where the compiler is not there, is killed from outside or runs out of time.
        """
        from pytest_qnnctx.build.onnx_graph import write_for_compiler
        from pytest_qnnctx.build.quantize.prepare import kept_model, prepare

        self.identify()
        work, model, target = request.workdir, request.model, request.target
        prepared = prepare(model, target, work, progress)
        source = work / "for_compiler.onnx"
        floating = write_for_compiler(prepared.path, source)
        dumped = work / "compiled"
        dumped.mkdir()
        context = work / "context.onnx"
        ask = work / "request.json"
        options = {
            **self._provider_options(target),
            "dump_json_qnn_graph": "1",
            "json_qnn_graph_dir": dumped.name,
        }
        # Names, not paths: the compiler names the graph by a hash over the model's path, and the
        # same model must give the same bytes wherever it is built.
        text = json.dumps({"model": source.name, "context": context.name, "options": options})
        ask.write_text(text)
        argv = [sys.executable, "-P", "-m", "pytest_qnnctx.build.ort_compile", ask.name]
        result = run_child(
            argv,
            time_limit_s=request.time_limit_s,
            cwd=work,
            on_tick=_Announcer(progress, f"compiling {model.name} for {target}"),
        )
        log = plain_log(result.stdout + result.stderr)
        binaries = sorted(work.glob(f"{context.stem}*.bin"))
        if result.returncode != 0 or len(binaries) != 1:
            raise _refusal(request, result, log, floating, binaries)
        graphs = read_compiled_graphs(dumped)
        log_file = work / "build.log"
        log_file.write_text(log)
        files = {"log": log_file}
        if kept := kept_model(prepared, work):
            files["quantized_model"] = kept
        return BuildProduct(
            binary=binaries[0],
            quantization=prepared.quantization,
            commands=(_recorded(argv, options),),
            float_ops=float_ops(graphs) if graphs else None,
            host_ops=_host_ops(context),
            encodings=encodings_use(prepared, graphs),
            asked=_asked(target),
            files=files,
        )


def _asked(target: Target) -> dict[str, object]:
    asked: dict[str, object] = {
        "htp_arch": target.htp_arch,
        "soc_model": target.soc_model,
        "optimization_level": _OPTIMIZATION_LEVEL,
    }
    if target.vtcm_mb is not None:
        asked["vtcm_mb"] = target.vtcm_mb
    return asked


def qnn_build_id() -> str:
    """The QNN build id in the installed package's libraries, such as 2.51.0.260929181845.

    Read from the file, without loading it. Raises InfrastructureError where there is none.
    """
    spec = find_spec("onnxruntime_qnn")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    for library in ("libQnnSystem.so", "libQnnHtp.so"):
        for path in sorted(folder.rglob(library)) if folder else ():
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as m:
                if found := _BUILD_ID.search(m):
                    return found.group(1).decode()
    raise InfrastructureError(
        "the installed onnxruntime-qnn holds no libQnnSystem.so with a QNN build id",
        next_step=_INSTALL,
    )


class _Announcer:
    """Says that a build still runs: after 5 s, then at ever longer intervals."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress, self._what, self._next = progress, what, 5.0

    def __call__(self, seconds: float) -> None:
        if seconds >= self._next:
            self._progress(f"{self._what}: {seconds:.0f} s")
            self._next = max(self._next * 1.5, self._next + 5)


def _refusal(
    request: BuildRequest,
    result: ChildResult,
    log: str,
    floating: frozenset[str],
    binaries: list[Path],
) -> BuildFailed | InfrastructureError:
    model, target = request.model, request.target
    subject = f"{model.name} ({model.path.name})"
    if result.ended_from_outside or "KeyboardInterrupt" in log:
        return InfrastructureError(
            f"compiling {subject} for {target} was ended: {result.ending}",
            next_step="look for a lack of memory, and for who ended it",
        )
    if shutil.disk_usage(request.workdir).free < _LEAST_FREE_BYTES or "No space left" in log:
        return InfrastructureError(
            f"compiling {subject} for {target} failed with a full disk at '{request.workdir}'",
            next_step="free some space, or choose another directory with --qnnctx-cache-dir",
        )
    if "ModuleNotFoundError" in log or "ImportError" in log:
        return InfrastructureError(
            f"the compiler's child process could not start: {last_errors(log, 1)}",
            next_step=_INSTALL,
        )
    findings = diagnose(log, floating, target)
    if findings:
        kinds = {finding.kind for finding in findings}
        why = (
            f"{_counted(findings)} in floating point"
            if kinds == {"float_op"}
            else f"the HTP does not take {_counted(findings)}"
        )
        what = f"{subject} does not compile for {target}: {why}"
        return BuildFailed(what, findings=findings, log=log, next_step=findings[0].next_step)
    if result.returncode == 0:
        what = f"compiling {subject} for {target} ended well but left {len(binaries)} binaries"
    elif result.returncode < 0:
        what = f"the compiler crashed on {subject} for {target}: {result.ending}"
    else:
        what = f"{subject} does not compile for {target}: {last_errors(log, 1)}"
    return BuildFailed(what, log=log, next_step="read the compiler's log")


def _counted(findings: Sequence[Finding]) -> str:
    return "1 node" if len(findings) == 1 else f"{len(findings)} nodes"


def _recorded(argv: list[str], options: Mapping[str, str]) -> tuple[str, ...]:
    """The command without paths of the scratch directory, which is gone when it is read."""
    kept = [f"{k}={v}" for k, v in sorted(options.items()) if k != "json_qnn_graph_dir"]
    return ("python", *argv[1:4], *kept)


def _host_ops(context: Path) -> tuple[str, ...] | None:
    """Nodes beside the compiled context: they would run on the host's CPU."""
    import onnx

    try:
        graph = onnx.load(str(context), load_external_data=False).graph
    except Exception:
        return None
    return tuple(
        f"{node.name} ({node.op_type})" for node in graph.node if node.op_type != "EPContext"
    )
