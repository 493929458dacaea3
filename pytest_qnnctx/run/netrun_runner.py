"""The runner ``netrun``: our own program, copied to the board, over ONNX Runtime's QNN plugin."""

from __future__ import annotations

import hashlib
import json
import posixpath
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.boards.board import Board, BoardFacts
from pytest_qnnctx.boards.session import BoardSession
from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.hosts.host import Completed
from pytest_qnnctx.model import Artifact
from pytest_qnnctx.netrun.bundle import write_bundle
from pytest_qnnctx.netrun.exits import DoesNotFit, Usage
from pytest_qnnctx.netrun.graph import Graph
from pytest_qnnctx.netrun.pack import INPUTS, OUTPUTS, PackWriter, read_head, read_pack
from pytest_qnnctx.parts import find_part
from pytest_qnnctx.run.native_values import graph_to_run, runnable, to_native, to_real
from pytest_qnnctx.run.netrun_endings import error_of
from pytest_qnnctx.run.runner import RunResult

if TYPE_CHECKING:
    from pytest_qnnctx.model import Array, Sample

_PROBE_LIMIT_S = 60.0
#: netrun ends itself at the time limit; this much later (seconds) the transport gives up on it.
_GRACE_S = 20.0


class NetrunRunner:
    """Runs a context binary with netrun; needs Python and onnxruntime-qnn on the board.

    A whole data set goes to the board as one file of native values and comes back as one, since a
    copy for each sample would take longer than running it.
    """

    name = "netrun"

    def probe(self, session: BoardSession) -> BoardFacts:
        """What the board and its runtime are.

        The emulator has no architecture or SoC of its own: those of the board's entry are
        reported. Hardware says its SoC itself (soc0), and the architecture is that of the SoC;
        None for one that is not known. Raises InfrastructureError where netrun cannot run there.
        """
        board = session.board
        with tempfile.TemporaryDirectory(prefix="qnnctx-") as name:
            argv = [*self._command(session, Path(name), _PROBE_LIMIT_S), "--probe"]
            done = session.transport.execute(
                [*argv, *_backend(board)], timeout_s=_PROBE_LIMIT_S, cwd=session.workdir
            )
        error = error_of(done, board=board.name, binary="its runtime", python=_python(board))
        if error is not None:
            raise error
        found = _parse_probe(done, board)
        if found["missing"]:
            raise InfrastructureError(
                f"board {board.name}: its interpreter {_python(board)} lacks "
                f"{', '.join(found['missing'])}",
                next_step="install onnxruntime and onnxruntime-qnn for it (pip), or set python: in "
                "boards.yaml to an interpreter that has them",
            )
        soc: str | None = found["soc"]
        part = find_part(soc) if soc else None
        arch = part.htp_arch if part else None
        if found["emulated"]:
            arch, soc = board.target.htp_arch, board.target.soc
        return BoardFacts(
            machine=found["machine"],
            emulated=found["emulated"],
            htp_arch=arch,
            soc=soc,
            qnn_version=found["qnn_version"],
            engine=found["engine"],
        )

    def execute(
        self,
        session: BoardSession,
        artifact: Artifact,
        binary: BinaryInfo,
        samples: Sequence[Sample],
        *,
        repeats: int = 1,
        timeout_s: float,
    ) -> RunResult:
        """See :meth:`pytest_qnnctx.run.runner.Runner.execute`.

        Float arrays are real values and are quantized as the graph wants; arrays of the graph's
        own integer type are taken for codes. With ``repeats`` the samples are gone through that
        many times, one round after the other; ``outputs`` are those of the first round, and
        ``inference_ms`` has all. ``timeout_s`` is for all of it, copies included.
        """
        if repeats < 1:
            raise UsageError(f"repeats must be at least 1, not {repeats}")
        deadline = time.monotonic() + timeout_s
        name = artifact.path.name
        graph = runnable(graph_to_run(binary, samples, name), name)
        with tempfile.TemporaryDirectory(prefix="qnnctx-") as scratch:
            local = Path(scratch)
            pack = local / "inputs.pack"
            _write_inputs(pack, graph, samples, name)
            staged = session.stage(
                artifact.path, artifact.sha256, timeout_s=_left(deadline, session, name)
            )
            netrun = self._command(session, local, _left(deadline, session, name))
            run = posixpath.join(session.workdir, f"netrun-{secrets.token_hex(4)}")
            remote_pack = f"{run}.pack"
            try:
                session.transport.push(pack, remote_pack, timeout_s=_left(deadline, session, name))
                pack.unlink()
                argv = _run_command(netrun, staged, remote_pack, run, len(samples) * repeats)
                limit = _left(deadline, session, name)
                done = session.transport.execute(
                    [*argv, *_backend(session.board), "--time_limit", f"{limit:.3f}"],
                    timeout_s=limit + _GRACE_S,
                    cwd=session.workdir,
                )
                error = error_of(
                    done, board=session.board.name, binary=name, python=_python(session.board)
                )
                if error is not None:
                    raise error
                results = local / "results"
                session.transport.pull(
                    run, results, timeout_s=max(_left(deadline, session, name), _GRACE_S)
                )
            finally:
                # The session's directory goes when it closes: this only frees space sooner.
                with suppress(InfrastructureError):
                    session.transport.execute(["rm", "-rf", run, remote_pack], timeout_s=_GRACE_S)
            return _result(results, graph, (len(samples), repeats), session.board, done)

    def _command(self, session: BoardSession, scratch: Path, timeout_s: float) -> list[str]:
        """How netrun is called on the board, where it is brought unless it is there already."""
        bundle = write_bundle(scratch / "netrun.pyz")
        digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
        return [_python(session.board), session.stage(bundle, digest, timeout_s=timeout_s)]


def _python(board: Board) -> str:
    """The interpreter on the board: ``python`` of its entry; on this host the one that runs us."""
    given = board.settings.get("python")
    if given:
        return str(given)
    return sys.executable if board.transport == "local" else "python3"


def _backend(board: Board) -> list[str]:
    """The runtime's library, where the board's entry says which; else that of onnxruntime-qnn."""
    return ["--backend", posixpath.join(board.lib_dir, "libQnnHtp.so")] if board.lib_dir else []


def _run_command(
    netrun: Sequence[str], binary: str, pack: str, output_dir: str, inferences: int
) -> list[str]:
    argv = [*netrun, "--retrieve_context", binary, "--input_pack", pack]
    argv += ["--output_dir", output_dir, "--timings", posixpath.join(output_dir, "timings.json")]
    if not inferences:
        return [*argv, "--load_only"]
    outputs = posixpath.join(output_dir, "outputs.pack")
    return [*argv, "--output_pack", outputs, "--num_inferences", str(inferences)]


def _write_inputs(path: Path, graph: Graph, samples: Sequence[Sample], name: str) -> None:
    with PackWriter(path, INPUTS, graph, len(samples)) as pack:
        for index, sample in enumerate(samples):
            pack.add(to_native(graph, sample, f"{name}, sample {index}"))


def _left(deadline: float, session: BoardSession, name: str) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise InfrastructureError(
            f"board {session.board.name}: the time for {name} was over before it had run",
            next_step="see what the board is busy with, or allow more time",
        )
    return left


def _parse_probe(done: Completed, board: Board) -> dict[str, Any]:
    try:
        found = json.loads(done.stdout)
        return {
            "machine": str(found["machine"]),
            "emulated": bool(found["emulated"]),
            "qnn_version": found["qnn_version"],
            "engine": str(found["engine"]),
            "soc": found["soc"],
            "missing": [str(name) for name in found["missing"]],
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(
            f"board {board.name}: netrun --probe printed what it never prints: "
            f"{done.stdout.strip()[:300]!r}",
            next_step="run the interpreter there by hand: something prints to its stdout",
        ) from error


def _result(
    results: Path, graph: Graph, asked: tuple[int, int], board: Board, done: Completed
) -> RunResult:
    """What was brought back for ``asked`` (samples, repeats). Raises InfrastructureError."""
    samples, repeats = asked
    try:
        times = json.loads((results / "timings.json").read_text(encoding="utf-8"))
        load_ms = float(times["load_ms"])
        inference_ms = tuple(float(value) for value in times["inference_ms"])
        emulated, engine = bool(times["emulated"]), str(times["engine"])
        outputs = _read_outputs(results / "outputs.pack", graph) if samples else ()
    except (OSError, ValueError, KeyError, TypeError, Usage, DoesNotFit) as error:
        raise InfrastructureError(
            f"board {board.name}: what netrun left there is not whole: {error}",
            next_step="see whether the board's disk is full, then run again",
        ) from error
    if len(outputs) != samples or len(inference_ms) != samples * repeats:
        raise InfrastructureError(
            f"board {board.name}: {samples} samples x {repeats} gave {len(outputs)} outputs and "
            f"{len(inference_ms)} times",
            next_step="this is a fault in netrun: report it",
        )
    return RunResult(outputs, load_ms, inference_ms, emulated, engine, done.stderr)


def _read_outputs(path: Path, graph: Graph) -> tuple[dict[str, Array], ...]:
    described, _, _ = read_head(path, OUTPUTS)
    if described != graph:
        raise Usage(f"{path.name} is another graph's")
    return tuple(to_real(graph, native) for native in read_pack(path, OUTPUTS))
