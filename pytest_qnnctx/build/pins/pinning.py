"""Making a pin of a model and its artifact, and a model of a pin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_qnnctx.build.pins.manifest import Manifest, Pin, PinnedBinary, Source
from pytest_qnnctx.errors import InfrastructureError, UsageError
from pytest_qnnctx.model import Artifact, Model, Provenance, Target

#: What differs between two builds of the same; no reason to change a pin.
_OF_THE_MOMENT = {
    "built_at": "",
    "build_seconds": 0.0,
    "builder": "",
    "host": "",
    "choice": "",
}


def pin_of_artifact(
    folder: Path,
    model: Model,
    target: Target,
    artifact: Artifact,
    *,
    files: Mapping[str, Path],
    calibration: str | None,
    file: str | None,
) -> Pin:
    """The pin of ``artifact``, which was built of ``model``, for a manifest in ``folder``.

    ``files`` are the model's by role, ``calibration`` the hash of its inputs where they came from
    code, ``file`` the binary's name in the store. The files' hashes are those that the build
    recorded. Raises UsageError where a file lies outside ``folder``, or the artifact was itself
    fetched, InfrastructureError where a file came to the model since.
    """
    made = artifact.provenance
    assert made is not None
    if made.toolchain["name"] == "fetch":
        raise UsageError(
            f"the binary of {model.name} was fetched, not built, so it cannot be pinned anew",
            next_step="build it: name a toolchain with --qnnctx-toolchain",
        )
    if files.keys() - made.files.keys():
        raise InfrastructureError(
            f"the files of model {model.name} changed while it was built",
            next_step="build it again",
        )
    sources = {
        role: Source(_relative(path, folder, model), made.files[role]["sha256"])
        for role, path in files.items()
    }
    return Pin(
        model=model.name,
        soc=target.soc,
        htp_arch=target.htp_arch,
        sources=sources,
        binary=PinnedBinary(file, artifact.sha256, artifact.size_bytes),
        provenance=made,
        input_shapes={name: tuple(shape) for name, shape in model.input_shapes.items()},
        calibration=calibration,
    )


def put_pin(manifest: Manifest, pin: Pin) -> Manifest:
    """``manifest`` with ``pin``, unless it already says the same of another build's time and place.

    A binary that was published stays so where ``pin`` is of the same bytes.
    """
    before = manifest.pins.get(pin.name)
    if before is None:
        return manifest.with_pin(pin)
    if pin.binary.file is None and before.binary.sha256 == pin.binary.sha256:
        pin = replace(pin, binary=before.binary)
    same = _timeless(before.provenance) == _timeless(pin.provenance)
    return manifest.with_pin(replace(pin, provenance=before.provenance) if same else pin)


def _timeless(provenance: Provenance) -> Provenance:
    return replace(provenance, **_OF_THE_MOMENT)  # type: ignore[arg-type]


def model_of_pin(manifest: Manifest, pin: Pin) -> Model:
    """The model that ``pin`` was made of, its files beside ``manifest``.

    Raises UsageError where that needs calibration inputs that came from code, or where a file is
    not there.
    """
    if pin.calibration is not None:
        raise UsageError(
            f"pin '{pin.name}' was calibrated with inputs from code, which the manifest has not",
            next_step="build and pin it from there",
        )
    paths = {role: manifest.folder / source.path for role, source in pin.sources.items()}
    for role, path in paths.items():
        if not path.is_file():
            raise UsageError(
                f"pin '{pin.name}': its {role} {path} is not there", next_step="restore the file"
            )
    return Model(
        paths["onnx"],
        name=pin.model,
        encodings=paths.get("encodings"),
        calibration=paths.get("calibration"),
        input_shapes=pin.input_shapes,
        reference=paths.get("reference"),
    )


def _relative(path: Path, folder: Path, model: Model) -> str:
    for one, base in (
        (_plain(path), _plain(folder)),  # through a link that lies in the folder
        (path.resolve(), folder.resolve()),
    ):
        if one.is_relative_to(base):
            return one.relative_to(base).as_posix()
    raise UsageError(
        f"{path}, a file of model {model.name}, lies outside the manifest's directory {folder}",
        next_step="keep the manifest in a directory that holds the models: --qnnctx-manifest FILE",
    )


def _plain(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))
