"""Toolchain ``onboard``: the model's library is compiled on the board, by the generator there."""

from __future__ import annotations

import posixpath
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_qnnctx.build.compiled_graph import float_ops
from pytest_qnnctx.build.content_key import file_sha256
from pytest_qnnctx.build.encodings_check import encodings_use
from pytest_qnnctx.build.logs.diagnosis import ddr_summaries, diagnose, stage_failure
from pytest_qnnctx.build.onboard.model_library import ModelLibrary, find_model_library
from pytest_qnnctx.build.qairt.backend_config import (
    EXTENSIONS_LIBRARY,
    compile_options,
    inner_config,
    outer_config,
)
from pytest_qnnctx.build.quantize.prepare import kept_model, prepare
from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.build.toolchain import (
    BuildBoard,
    BuildProduct,
    BuildRequest,
    Progress,
    ToolchainId,
)
from pytest_qnnctx.config import Settings
from pytest_qnnctx.errors import Finding, InfrastructureError, UsageError
from pytest_qnnctx.model import Model, Target
from pytest_qnnctx.qualcomm_env import load_qualcomm_env

GENERATOR = "qnn-context-binary-generator"
#: Where a Linux image for these boards has the QNN libraries, where boards.yaml does not say.
DEFAULT_LIB_DIR = "/usr/lib"
_VERSION = re.compile(r"v?(\d+\.\d+\.\d+(?:\.\d+)?)")
_SHORT_S = 60.0


class OnboardToolchain:
    """Compiles ``lib<model>.so`` on a leased board, where no architecture can be mistaken.

    The library is looked for beside the ONNX (:mod:`.model_library`). The board's own generator
    is used, with the QNN libraries of its runtime. Its version must be known before a board is
    asked for, since it decides whether the cache has the binary already: ``QC_QAIRT_VERSION``
    says it, and the generator on the board is held to it.
    """

    name = "onboard"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def identify(self) -> ToolchainId:
        """The declared version. Raises UsageError where none is declared."""
        env = load_qualcomm_env(self._settings.root)
        why = "toolchain 'onboard' must know which version compiles on the board"
        text = env.need("QC_QAIRT_VERSION", why)
        found = _VERSION.fullmatch(text.strip())
        if found is None:
            raise UsageError(
                f"QC_QAIRT_VERSION is '{text}', which is no version x.y.z.build",
                next_step=f"`{GENERATOR} --version` on the board tells it",
            )
        return ToolchainId(self.name, found[1], found[1])

    def options(self, model: Model, target: Target) -> Mapping[str, str]:
        """What the generator is asked for, and the hashes of the library and its JSON."""
        library = find_model_library(model)
        options = {key: str(value) for key, value in compile_options(target).asked().items()}
        options["library_sha256"] = file_sha256(library.path)
        if library.net_json is not None:
            options["net_json_sha256"] = file_sha256(library.net_json)
        return options

    def build(self, request: BuildRequest, progress: Progress) -> BuildProduct:
        """Compile on a board and bring the binary back.

        Raises BuildFailed where the generator refuses the model, InfrastructureError where the
        board, its generator or its libraries are not as they must be, UsageError where there is no
        library or no board was selected.
        """
        model, target = request.model, request.target
        library = find_model_library(model)
        prepared = prepare(model, target, request.workdir, progress)
        if request.open_board is None:
            raise UsageError(
                "toolchain 'onboard' compiles on a board, and none was selected",
                next_step="choose one with --board NAME",
            )
        with request.open_board() as board:
            progress(f"compiling {library.path.name} for {target} on {board.host.name}")
            run = _Generation(request, board, library, self.identify().version).run()
        findings = diagnose(run.stage, target)
        if run.binary is None:
            subject = f"{model.name} ({library.path.name})"
            raise stage_failure(run.stage, findings, subject=subject, target=target)
        graphs = () if library.net is None else (library.net,)
        log = request.workdir / "build.log"
        log.write_text(f"== {run.stage.stage} on {board.host.name}\n{run.stage.log}")
        files = {"log": log}
        if kept := kept_model(prepared, request.workdir):
            files["quantized_model"] = kept
        floats, note = _floats(library, target)
        return BuildProduct(
            binary=run.binary,
            quantization=_quantization(prepared.quantization, target),
            commands=(run.stage.command,),
            float_ops=floats,
            host_ops=(),  # a context holds what the HTP backend took, and it took the whole graph
            encodings=encodings_use(prepared, graphs),
            asked=compile_options(target).asked(),
            findings=(*findings, *note),
            ddr=ddr_summaries(run.stage.log),
            files=files,
        )


def _floats(
    library: ModelLibrary, target: Target
) -> tuple[tuple[str, ...] | None, tuple[Finding, ...]]:
    if library.net is not None:
        return float_ops([library.net]), ()
    if target.has_float is False:
        why = (
            f"no op can be in floating point: the HTP {target.htp_arch} of {target.soc} has none, "
            f"and the model compiled; {library.path.stem.removeprefix('lib')}_net.json, which "
            "would list them, is not there or has another form"
        )
        return (), (Finding("float_ops_by_architecture", library.path.name, why),)
    return None, ()


def _quantization(prepared: str, target: Target) -> str:
    """The ONNX may be float where the library was quantized by the converter."""
    return "quantized" if prepared == "float32" and target.has_float is False else prepared


@dataclass(frozen=True)
class _Ran:
    stage: StageRun
    binary: Path | None


@dataclass(frozen=True)
class _Generation:
    """One run of the generator on one board."""

    request: BuildRequest
    board: BuildBoard
    library: ModelLibrary
    version: str

    def run(self) -> _Ran:
        board, base = self.board, self.library.graph_name
        lib_dir = board.lib_dir or DEFAULT_LIB_DIR
        generator = self._generator(lib_dir)
        library = board.stage(self.library.path, file_sha256(self.library.path))
        config = self._config(lib_dir)
        output = posixpath.join(board.workdir, "output")
        argv = [
            *(generator, "--model", library),
            *("--backend", posixpath.join(lib_dir, "libQnnHtp.so")),
            *("--output_dir", output, "--binary_file", base, "--config_file", config),
        ]
        began = time.monotonic()
        done = board.host.execute(
            argv,
            timeout_s=self.request.time_limit_s,
            env=self._environment(lib_dir),
            cwd=board.workdir,
        )
        binary = self._fetch(posixpath.join(output, f"{base}.bin"))
        recorded = [
            *(GENERATOR, "--model", self.library.path.name, "--backend", "libQnnHtp.so"),
            *("--output_dir", "output", "--binary_file", base, "--config_file", "config.json"),
        ]
        stage = StageRun(
            GENERATOR,
            tuple(recorded),
            done.returncode,
            done.stdout + done.stderr,
            time.monotonic() - began,
            produced=binary is not None,
        )
        return _Ran(stage, binary if done.returncode == 0 else None)

    def _environment(self, lib_dir: str) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": lib_dir}

    def _shell(self, script: str) -> tuple[int, str]:
        done = self.board.host.execute(["sh", "-c", script], timeout_s=_SHORT_S)
        return done.returncode, done.stdout.strip()

    def _generator(self, lib_dir: str) -> str:
        """The generator's path on the board, of the declared version, with its backend there."""
        host = self.board.host
        code, generator = self._shell(f"command -v {GENERATOR}")
        if code != 0 or not generator:
            raise InfrastructureError(
                f"{host.name} has no {GENERATOR} on its PATH",
                next_step="copy it there from the SDK's bin/aarch64-*/ (into /usr/bin, or a "
                "directory of the PATH of non-interactive logins)",
            )
        backend = posixpath.join(lib_dir, "libQnnHtp.so")
        code, _ = self._shell(f"test -e {shlex.quote(backend)}")
        if code != 0:
            raise InfrastructureError(
                f"{host.name} has no {backend}",
                next_step="say where its QNN libraries are: runtime: {lib_dir: ...} in boards.yaml",
            )
        said = host.execute(
            [generator, "--version"], timeout_s=_SHORT_S, env=self._environment(lib_dir)
        )
        found = re.search(r"QNN SDK v?(\d+\.\d+\.\d+(?:\.\d+)?)", said.stdout + said.stderr)
        if found is None or not _same_version(found[1], self.version):
            what = f"is of QNN {found[1]}" if found else "does not say its version"
            raise InfrastructureError(
                f"{GENERATOR} on {host.name} {what}; QC_QAIRT_VERSION says {self.version}",
                next_step="correct QC_QAIRT_VERSION, or install that version on the board",
            )
        return generator

    def _config(self, lib_dir: str) -> str:
        """Write the backend extensions' two files on the board; returns the outer one's path."""
        workdir = self.board.workdir
        options = compile_options(self.request.target)
        graphs = [self.library.graph_name]
        inner = posixpath.join(workdir, "htp.json")
        self._write(inner, inner_config("", options, self.version, graphs=graphs))
        outer = posixpath.join(workdir, "config.json")
        self._write(outer, outer_config(posixpath.join(lib_dir, EXTENSIONS_LIBRARY), inner))
        return outer

    def _write(self, remote: str, text: str) -> None:
        local = self.request.workdir / posixpath.basename(remote)
        local.write_text(text)
        self.board.host.push(local, remote, timeout_s=_SHORT_S)

    def _fetch(self, remote: str) -> Path | None:
        """Bring the binary back and compare its sha256 with the board's; None where there is none.

        Raises InfrastructureError where the copy is not what is on the board.
        """
        host = self.board.host
        code, said = self._shell(
            f"test -s {shlex.quote(remote)} && sha256sum {shlex.quote(remote)}"
        )
        if code != 0:
            return None
        local = self.request.workdir / posixpath.basename(remote)
        host.pull(remote, local, timeout_s=self.request.time_limit_s)
        if file_sha256(local) != said.split()[0].lstrip("\\"):
            raise InfrastructureError(
                f"the copy of {remote} from {host.name} is not what is there (sha256 differs)",
                next_step="check the connection and the disks, then try again",
            )
        return local


def _same_version(one: str, other: str) -> bool:
    """Equal as far as both go: 2.37.1 and 2.37.1.250807 are the same."""
    parts = [text.split(".") for text in (one, other)]
    shared = min(map(len, parts))
    return parts[0][:shared] == parts[1][:shared]
