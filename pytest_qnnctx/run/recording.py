"""Runs on the emulator, recorded: it is deterministic, so the same run need not be made again.

Only emulated runs are recorded, never hardware's: the emulator's outputs are bit-exact from run to
run (measured). Its times are not, but they are evidence of nothing anyway: they are labelled as
emulated, and as recorded, with the date.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.boards.board import BoardFacts
from pytest_qnnctx.boards.session import BoardSession
from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.model import Artifact
from pytest_qnnctx.run.runner import Runner, RunResult
from pytest_qnnctx.samples import samples_sha256

if TYPE_CHECKING:
    from pytest_qnnctx.model import Sample


class RecordingRunner:
    """A Runner that keeps what ``inner`` did on the emulator in ``directory`` and repeats it.

    The n-th identical call repeats the n-th recorded one, so that eleven loads stay eleven
    samples. ``fresh`` ignores what is recorded, and records anew.
    """

    def __init__(
        self, inner: Runner, facts: BoardFacts, directory: Path, *, fresh: bool = False
    ) -> None:
        self.name = inner.name
        self._inner, self._facts, self._directory, self._fresh = inner, facts, directory, fresh
        self._calls: Counter[str] = Counter()

    def probe(self, session: BoardSession) -> BoardFacts:
        """What was found out already."""
        return self._facts

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
        """See :meth:`Runner.execute`; from the record where there is one."""
        if not self._facts.emulated:
            return self._inner.execute(
                session, artifact, binary, samples, repeats=repeats, timeout_s=timeout_s
            )
        asked = {
            "binary": artifact.sha256,
            "samples": samples_sha256(samples),
            "repeats": repeats,
            "runner": self.name,
            "code": _code_sha256(self._inner),
            "engine": self._facts.engine,
        }
        text = json.dumps(asked, sort_keys=True)
        ordinal = self._calls[text]
        self._calls[text] += 1
        key = hashlib.sha256(f"{text}#{ordinal}".encode()).hexdigest()
        path = self._directory / f"{key}.npz"
        found = None if self._fresh else _read(path)
        if found is not None:
            return found
        result = self._inner.execute(
            session, artifact, binary, samples, repeats=repeats, timeout_s=timeout_s
        )
        _write(path, result)
        return result


@cache
def _files_sha256(files: tuple[Path, ...]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _code_sha256(runner: Runner) -> str:
    """A hash of the code that runs and decodes: a record must not outlive a mistake in it."""
    files = {Path(str(inspect.getsourcefile(cls))) for cls in type(runner).__mro__[:-1]}
    package = Path(__file__).parent.parent
    for folder in ("netrun", "run"):
        files.update((package / folder).glob("*.py"))
    return _files_sha256(tuple(sorted(file for file in files if file.is_file())))


def _read(path: Path) -> RunResult | None:
    """The recorded run, or None where there is none or it is damaged."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as data:
            head = json.loads(str(data["head"]))
            names, count = head["outputs"], head["count"]
            arrays = [data[f"output_{index}"] for index in range(len(names))]
    except Exception:  # numpy and zipfile raise a dozen kinds for damaged files
        return None
    outputs = tuple(
        {name: array[i] for name, array in zip(names, arrays, strict=True)} for i in range(count)
    )
    return RunResult(
        outputs,
        head["load_ms"],
        tuple(head["inference_ms"]),
        True,
        head["engine"],
        head["log"],
        head["recorded_at"],
    )


def _write(path: Path, result: RunResult) -> None:
    import numpy as np

    names = sorted(result.outputs[0]) if result.outputs else []
    head = {
        "outputs": names,
        "count": len(result.outputs),
        "load_ms": result.load_ms,
        "inference_ms": list(result.inference_ms),
        "engine": result.engine,
        "log": result.log,
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    arrays = {
        f"output_{index}": np.stack([output[name] for output in result.outputs])
        for index, name in enumerate(names)
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, head=np.array(json.dumps(head)), **arrays)  # type: ignore[arg-type]
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InfrastructureError(
            f"the run could not be recorded in '{path.parent}': {error.strerror or error}",
            next_step="free some space, or choose another directory with --qnnctx-cache-dir",
        ) from error
