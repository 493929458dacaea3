"""Toolchain ``fetch``: the binary that the manifest pins, out of the cache or the store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_qnnctx.build.content_key import file_sha256
from pytest_qnnctx.build.pins.binary_source import fetch_binary, shown_file
from pytest_qnnctx.build.pins.manifest import MANIFEST_SCHEMA, Manifest, Pin, read_manifest
from pytest_qnnctx.build.pins.manifest_check import short
from pytest_qnnctx.build.pins.manifest_text import pin_sha256
from pytest_qnnctx.build.store import Store
from pytest_qnnctx.build.toolchain import BuildProduct, BuildRequest, Progress, ToolchainId
from pytest_qnnctx.config import MANIFEST, Settings
from pytest_qnnctx.errors import Finding, InfrastructureError, ProductFailure, UsageError
from pytest_qnnctx.model import Model, Provenance, Target

_PIN = "qnnctx build MODEL --board NAME --update-manifest"


class FetchToolchain:
    """Builds nothing: it takes what was built, pinned and published before.

    The model must be the one that was pinned, file by file. What the pin says of the build
    (quantization, float ops, encodings ...) becomes the artifact's provenance, and where and by
    what it was built its origin.
    """

    name = "fetch"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def identify(self) -> ToolchainId:
        """The manifest's format. Raises InfrastructureError where there is no manifest."""
        self._manifest()
        return ToolchainId(self.name, f"manifest {MANIFEST_SCHEMA}", "")

    def pins(self, model: Model, target: Target) -> bool:
        """Whether there is a manifest and it pins ``model`` for ``target``. Raises UsageError."""
        if self._settings.manifest is None:
            return False
        return self._manifest().pin_of(model.name, target) is not None

    def options(self, model: Model, target: Target) -> Mapping[str, str]:
        """Which bytes are pinned, and all that the pin says: another pin is fetched anew.

        Raises UsageError where the manifest pins no binary of ``model`` for ``target``.
        """
        pin = self._pin(self._manifest(), model, target)
        return {"pin": pin.name, "binary": pin.binary.sha256, "pin_sha256": pin_sha256(pin)}

    def build(self, request: BuildRequest, progress: Progress) -> BuildProduct:
        """Compare the model with the pin, and get the binary.

        A binary of the pinned sha256 in the cache needs no store. Raises ProductFailure where the
        model changed since it was pinned (a finding a file), and as
        :func:`~pytest_qnnctx.build.pins.binary_source.fetch_binary` does.
        """
        manifest = self._manifest()
        pin = self._pin(manifest, request.model, request.target)
        changed = tuple(_changes(pin, request.model))
        if changed:
            shortly = "; ".join(finding.message for finding in changed[:3])
            raise ProductFailure(
                f"the model under the pin '{pin.name}' of {manifest.path} changed: {shortly}",
                findings=changed if len(changed) > 1 else (),
                next_step="run qnnctx build --update-manifest if that is wanted, or restore the "
                "files",
            )
        binary = request.workdir / "pinned.bin"
        files = self._from_cache(pin, binary)
        if files is not None:
            progress(f"the binary of pin '{pin.name}' is in the cache")
        else:
            files = {}
            self._from_store(manifest, pin, binary, request, progress)
        made = pin.provenance
        return BuildProduct(
            binary=binary,
            quantization=made.quantization,
            commands=made.commands,
            float_ops=made.float_ops,
            host_ops=made.host_ops,
            encodings=made.encodings,
            asked=made.asked,
            findings=made.findings,
            ddr=made.ddr,
            files=files,
            origin=_origin(made),
        )

    def _manifest(self) -> Manifest:
        path = self._settings.manifest
        if path is None:
            raise InfrastructureError(
                f"there is no manifest ({MANIFEST} in {self._settings.root})",
                next_step=f"make it: {_PIN}; or name another one with --qnnctx-manifest",
            )
        return read_manifest(path)

    def _pin(self, manifest: Manifest, model: Model, target: Target) -> Pin:
        pin = manifest.pin_of(model.name, target)
        if pin is None:
            names = sorted(manifest.pins)
            listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if names[8:] else "")
            raise UsageError(
                f"the manifest {manifest.path} pins no binary of model {model.name} for {target}; "
                f"it pins: {listed or 'nothing'}",
                next_step=f"pin it: qnnctx build {model.path} --name {model.name} --board NAME "
                "--update-manifest (with its encodings and calibration)",
            )
        return pin

    def _from_cache(self, pin: Pin, to: Path) -> dict[str, Path] | None:
        """A copy of the binary, and of what was kept beside it; None where it is not there."""
        there = Store(self._settings.cache_dir).with_sha256(pin.binary.sha256)
        if there is None:
            return None
        try:
            shutil.copyfile(there.path, to)
            if file_sha256(to) != pin.binary.sha256:
                raise OSError("it changed while it was copied")
            if there.quantized_model is None:
                return {}
            kept = to.with_name("quantized.onnx")
            shutil.copyfile(there.quantized_model, kept)
        except OSError:  # swept by another process, or a full disk, which the store's copy will say
            to.unlink(missing_ok=True)
            return None
        return {"quantized_model": kept}

    def _from_store(
        self, manifest: Manifest, pin: Pin, to: Path, request: BuildRequest, progress: Progress
    ) -> None:
        binary, place = pin.binary, manifest.store
        if binary.file is None or place is None:
            why = (
                "the manifest names no store"
                if place is None
                else f"it was not published to {place}"
            )
            raise InfrastructureError(
                f"the binary of pin '{pin.name}' ({short(binary.sha256)}) is not in the cache "
                f"{self._settings.cache_dir}, and {why}",
                next_step="where it was built, run: qnnctx build MODEL --update-manifest --publish "
                "DIRECTORY-OR-URL",
            )
        progress(f"fetching {shown_file(place, binary)} ({binary.size_bytes / 1e6:.1f} MB)")
        fetch_binary(place, binary, to, time_limit_s=request.time_limit_s, progress=progress)


def _origin(made: Provenance) -> Mapping[str, Any]:
    """Where the pinned binary was built, when, by whom and with what."""
    if made.origin is not None:
        return made.origin
    return {
        "toolchain": dict(made.toolchain),
        "built_at": made.built_at,
        "build_seconds": made.build_seconds,
        "builder": made.builder,
        "host": made.host,
    }


def _changes(pin: Pin, model: Model) -> Iterator[Finding]:
    """How ``model`` differs from what was pinned; nothing where it does not."""
    from pytest_qnnctx.build.files import model_files
    from pytest_qnnctx.build.quantize.calibration_inputs import calibration_sha256

    pinned = {role: source.sha256 for role, source in pin.sources.items()}
    now = {role: file_sha256(path) for role, path in model_files(model).items()}
    inputs = "calibration inputs (from code)"
    if pin.calibration is not None:
        pinned[inputs] = pin.calibration
    if model.calibration is not None and not isinstance(model.calibration, Path):
        now[inputs] = calibration_sha256(model.calibration)
    for role in sorted(pinned.keys() | now.keys()):
        before, after = pinned.get(role), now.get(role)
        if before == after or (role.startswith("reference") and None in (before, after)):
            continue  # the reference is compared with, not compiled: to leave it out is no change
        message = (
            f"{role} {'not' if before is None else short(before)} pinned, "
            f"{'not there' if after is None else short(after)} now"
        )
        yield Finding("source_changed", role, message)
    if dict(pin.input_shapes) != {name: tuple(s) for name, s in model.input_shapes.items()}:
        shapes = f"{_shapes(pin.input_shapes)} pinned, {_shapes(model.input_shapes)} now"
        yield Finding("source_changed", "input_shapes", f"input_shapes {shapes}")


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    listed = ", ".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))
    return listed or "none"
