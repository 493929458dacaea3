"""Building: from a Model and a Target to an Artifact in the store, with its provenance."""

from __future__ import annotations

import getpass
import json
import platform
import shutil
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pytest_qnnctx.build.content_key import (
    content_key,
    file_sha256,
    hash_files,
    source_key,
)
from pytest_qnnctx.build.store import PROVENANCE_FILE, QUANTIZED_FILE, Store, binary_name
from pytest_qnnctx.build.toolchain import (
    BuildProduct,
    BuildRequest,
    OpenBoard,
    Progress,
    Toolchain,
)
from pytest_qnnctx.errors import ProductFailure
from pytest_qnnctx.model import Artifact, Model, Provenance, Target

#: A build that takes longer than this (seconds) is given up.
BUILD_TIME_LIMIT_S = 3600.0


@dataclass(frozen=True)
class Sources:
    """What is to be built, read once: the model with its files' hashes, and the target.

    ``files`` maps a role to ``{"name", "sha256"}``; ``calibration`` is the hash of the inputs.
    """

    model: Model
    target: Target
    files: Mapping[str, Mapping[str, str]]
    calibration: str | None

    @property
    def hashes(self) -> dict[str, str]:
        """Role -> sha256."""
        return {role: entry["sha256"] for role, entry in self.files.items()}

    @property
    def key(self) -> str:
        """Equal where the same is to be built, by whichever toolchain."""
        return source_key(
            self.model, self.target, file_hashes=self.hashes, calibration=self.calibration
        )


def read_sources(model: Model, target: Target) -> Sources:
    """Read and hash every file of ``model``. Raises UsageError where one is not there."""
    from pytest_qnnctx.build.files import model_files
    from pytest_qnnctx.build.quantize.calibration_inputs import calibration_sha256, materialise

    model = materialise(model)
    files = hash_files(model_files(model))
    calibration = None if model.calibration is None else calibration_sha256(model.calibration)
    return Sources(model, target, files, calibration)


def artifact_key(sources: Sources, toolchain: Toolchain) -> str:
    """The content key of what ``toolchain`` makes of ``sources``. Raises as its methods do."""
    return content_key(
        sources.model,
        sources.target,
        toolchain.identify(),
        file_hashes=sources.hashes,
        options=toolchain.options(sources.model, sources.target),
        calibration=sources.calibration,
    )


def build_artifact(
    model: Model, target: Target, toolchain: Toolchain, store: Store, *, progress: Progress
) -> Artifact:
    """:func:`build_from` for a model whose files have not been read yet."""
    return build_from(read_sources(model, target), toolchain, store, progress=progress)


def build_from(
    sources: Sources,
    toolchain: Toolchain,
    store: Store,
    *,
    progress: Progress,
    choice: str = "",
    open_board: OpenBoard | None = None,
    refused: MutableMapping[str, ProductFailure] | None = None,
) -> Artifact:
    """The artifact of ``sources``: from the store, or built into it.

    ``choice`` says how the toolchain was chosen and is kept in the provenance. ``open_board`` is
    for toolchains that compile on a board. ``refused`` keeps, by content key, what did not build,
    so that it is not tried again. Raises ProductFailure (BuildFailed) where the model cannot be
    compiled, UsageError where one of its files is not there, InfrastructureError where a tool, the
    store or the disk fails.
    """
    model, target = sources.model, sources.target
    identity, options = toolchain.identify(), toolchain.options(model, target)
    key = artifact_key(sources, toolchain)
    refused = {} if refused is None else refused
    if key in refused:
        raise refused[key]
    files = dict(sources.files)
    if sources.calibration is not None:
        files.setdefault("calibration", {"name": "inputs", "sha256": sources.calibration})

    def build(workdir: Path) -> None:
        scratch = workdir / "scratch"
        scratch.mkdir()
        started, began = time.monotonic(), datetime.now(UTC)
        request = BuildRequest(model, target, scratch, BUILD_TIME_LIMIT_S, open_board)
        product = toolchain.build(request, progress)
        binary = workdir / binary_name(model.name, product.quantization, target.htp_arch)
        product.binary.rename(binary)
        _keep(product, workdir)
        provenance = Provenance(
            key=key,
            source_key=sources.key,
            model=model.name,
            files=files,
            target=asdict(target),
            toolchain={**asdict(identity), "options": dict(options)},
            quantization=product.quantization,
            commands=product.commands,
            built_at=began.isoformat(timespec="seconds"),
            build_seconds=round(time.monotonic() - started, 3),
            builder=_user(),
            host=f"{platform.node()} ({platform.system()} {platform.machine()})",
            float_ops=product.float_ops,
            host_ops=product.host_ops,
            encodings=product.encodings,
            asked=dict(product.asked),
            findings=product.findings,
            ddr=product.ddr,
            origin=product.origin,
            choice=choice,
            sha256=file_sha256(binary),
            size_bytes=binary.stat().st_size,
        )
        shutil.rmtree(scratch)
        text = json.dumps(provenance.to_json(), indent=2, allow_nan=False)
        (workdir / PROVENANCE_FILE).write_text(text + "\n")

    try:
        artifact = store.get_or_build(
            key,
            build,
            on_wait=lambda: progress(f"waiting for another process that builds {model.name}"),
        )
    except ProductFailure as failure:
        refused[key] = failure
        raise
    store.note_source(sources.key, key)
    return artifact


def _keep(product: BuildProduct, workdir: Path) -> None:
    """Move the files that outlive the build out of its scratch directory."""
    names: Mapping[str, str] = {"quantized_model": QUANTIZED_FILE, "log": "build.log"}
    for role, path in product.files.items():
        kept = workdir / names.get(role, path.name)
        if path.is_relative_to(workdir):
            path.rename(kept)
        else:
            shutil.copy(path, kept)  # not ours to move: the user's own file


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, as in many containers
        return "unknown"
