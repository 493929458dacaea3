"""``qnnctx build --update-manifest``: build, publish and pin."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_qnnctx.cli_common import open_workbench, say, settings_of
from pytest_qnnctx.config import MANIFEST
from pytest_qnnctx.errors import ProductFailure, UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.build.pins.manifest import Manifest, Pin
    from pytest_qnnctx.build.pins.store_place import StorePlace
    from pytest_qnnctx.model import Artifact, Model, Target
    from pytest_qnnctx.workbench import Workbench


def build_and_tell(workbench: Workbench, model: Model, target: Target) -> Artifact:
    """Build, and say what was found on the way.

    A binary that is not what was asked of the compiler is neither printed nor pinned.
    """
    artifact = workbench.proven(model, target)
    if artifact.provenance is not None:
        for finding in artifact.provenance.findings:
            hint = f" ({finding.next_step})" if finding.next_step else ""
            say(f"note: {finding.message}{hint}")
    return artifact


def pin_model(arguments: argparse.Namespace, model: Model, publish_to: str | None) -> int:
    """Build ``model`` for the selected board and pin it; prints the binary's path."""
    from pytest_qnnctx.build.pins.manifest import Manifest, read_manifest

    workbench, path = _open(arguments)
    manifest = read_manifest(path) if path.exists() else Manifest(path)
    print(_Pinning(workbench, manifest, publish_to).pin(model, workbench.target).path)
    return 0


def _open(arguments: argparse.Namespace) -> tuple[Workbench, Path]:
    """The tools, and the manifest's path."""
    settings = settings_of(arguments)
    if settings.toolchain == "fetch":
        raise UsageError(
            "toolchain fetch gives what is pinned, so it cannot make pins",
            next_step="name one that builds with --qnnctx-toolchain, or leave it out",
        )
    path = settings.manifest or settings.root / MANIFEST
    # Without a manifest there is no toolchain fetch, which auto would take for what is pinned.
    return open_workbench(arguments, replace(settings, manifest=None)), path


def repin_all(arguments: argparse.Namespace, publish_to: str | None) -> int:
    """Build and pin anew each pin whose files are there; a model that fails stops no other."""
    from pytest_qnnctx.boards.target import target_of
    from pytest_qnnctx.build.pins.manifest import read_manifest
    from pytest_qnnctx.build.pins.pinning import model_of_pin

    workbench, path = _open(arguments)
    job = _Pinning(workbench, read_manifest(path), publish_to)
    failed: list[str] = []
    absent: list[str] = []
    for pin in sorted(job.manifest.pins.values(), key=lambda pin: pin.name):
        target = target_of(pin.soc, pin.htp_arch)
        if job.workbench.settings.board is not None and target != job.workbench.target:
            say(f"{pin.name} stays as it is: it is for another target than the board's")
            continue
        try:
            model = model_of_pin(job.manifest, pin)
        except UsageError as error:
            say(f"{pin.name} stays as it is: {error.what}")
            absent.append(pin.name)
            continue
        try:
            print(job.pin(model, target).path)
        except ProductFailure as error:
            say(str(error))
            failed.append(pin.name)
    if failed or absent:
        raise ProductFailure(
            f"{len(failed + absent)} of {len(job.manifest.pins)} pins could not be renewed and "
            f"stay as they are: {', '.join(failed + absent)}",
            next_step="see above for each; a pin whose model is gone for good is removed from "
            f"{path.name} by hand, a moved file is pinned again with MODEL",
        )
    return 0


class _Pinning:
    """Builds, publishes and pins, one model after the other, into one manifest."""

    def __init__(self, workbench: Workbench, manifest: Manifest, publish_to: str | None) -> None:
        self.workbench = workbench
        self.manifest = manifest
        self._asked = None if publish_to is None else _store_text(publish_to, manifest)

    def pin(self, model: Model, target: Target) -> Artifact:
        """The artifact of ``model``, which is pinned when this returns."""
        from pytest_qnnctx.build.files import model_files
        from pytest_qnnctx.build.pins.manifest import change_manifest
        from pytest_qnnctx.build.pins.pinning import pin_of_artifact, put_pin

        artifact = build_and_tell(self.workbench, model, target)
        pin = pin_of_artifact(
            self.manifest.folder,
            model,
            target,
            artifact,
            files=model_files(model),
            calibration=None,  # on the command line they are files
            file=None,
        )
        pin = replace(pin, binary=replace(pin.binary, file=self._publish(artifact)))
        before = self.manifest.pins.get(pin.name)

        def change(manifest: Manifest) -> Manifest:
            if self._asked is not None and manifest.store is None:
                manifest = manifest.with_store(self._asked)
            return put_pin(manifest, pin)

        locks = self.workbench.cache_dir / "locks"
        self.manifest = change_manifest(self.manifest.path, change, lock_dir=locks)
        self._tell(before, self.manifest.pins[pin.name])
        return artifact

    def _publish(self, artifact: Artifact) -> str | None:
        """Its name in the store; None where it was put into none."""
        from pytest_qnnctx.build.pins.publish import is_writable_directory, publish
        from pytest_qnnctx.build.pins.store_place import parse_store

        place: StorePlace | None = self.manifest.store
        if self._asked is not None:
            place = parse_store(self._asked, self.manifest.folder, "--publish")
            kept = self.manifest.store
            if kept is not None and str(kept) != str(place):
                say(
                    f"published to {place}, while {self.manifest.path.name} goes on to name the "
                    f"store {kept}: the same files must be there"
                )
        elif place is None or not is_writable_directory(place):
            return None
        return publish(artifact, place, say).file

    def _tell(self, before: Pin | None, after: Pin) -> None:
        name = self.manifest.path.name
        now = after.binary.sha256[:12]
        if before is None:
            say(f"pinned {after.name} in {name}: {now}")
        elif before.binary.sha256 == after.binary.sha256:
            say(f"{after.name} is pinned in {name} as before: {now}")
        else:
            say(f"pinned {after.name} in {name}: {now}, before {before.binary.sha256[:12]}")
        if after.binary.file is None:
            where = "no store is named" if self.manifest.store is None else "it was not published"
            say(f"note: only this cache has the binary, as {where}: others need --publish STORE")


def _store_text(given: str, manifest: Manifest) -> str:
    """How the manifest writes a store that was given on the command line.

    A relative directory stays one; an absolute one that does not hold the manifest's is a URL.
    """
    if "://" in given:
        return given
    path, base = Path(given).expanduser(), manifest.folder.absolute()
    folder = Path(os.path.normpath(path.absolute()))
    if path.is_absolute() and not folder.is_relative_to(base):
        return folder.as_uri()
    return Path(os.path.relpath(folder, base)).as_posix()
