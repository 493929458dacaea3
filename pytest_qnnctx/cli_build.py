"""``qnnctx build``: build a binary, pin it in the manifest, or check what the manifest pins."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.cli_common import EXIT_PRODUCT, add_options, open_workbench, say, settings_of
from pytest_qnnctx.cli_pin import build_and_tell, pin_model, repin_all
from pytest_qnnctx.config import MANIFEST
from pytest_qnnctx.errors import UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.build.pins.manifest import Manifest, Pin
    from pytest_qnnctx.model import Model

#: In the cache's directory: the hashes of files that ``--check`` has read.
HASHES_FILE = "file-hashes.json"
_OF_A_MODEL = ("encodings", "calibration", "reference", "name", "shape")


def add_build(commands: Any) -> None:
    """Add the subcommand ``build`` to what ``add_subparsers`` returned."""
    build = commands.add_parser(
        "build",
        help="build a model's context binary, pin it, or check the pins",
        description="Build MODEL's context binary into the cache and print its path. "
        f"--update-manifest pins what was built in {MANIFEST}; --check tells by its exit status "
        "(0: no, 1: yes) whether anything under the pins changed.",
    )
    build.add_argument("model", type=Path, nargs="?", metavar="MODEL.onnx")
    build.add_argument("--encodings", type=Path, metavar="FILE", help="AIMET encodings")
    build.add_argument("--calibration", type=Path, metavar="FILE", help=".npz or input list")
    build.add_argument("--reference", type=Path, metavar="FILE", help="FP32 ONNX of a QDQ MODEL")
    build.add_argument("--name", default="", help="name of the binary (default: the file's)")
    build.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=1,3,224,224",
        help="fix a dynamic input's shape; once an input",
    )
    what = build.add_mutually_exclusive_group()
    what.add_argument(
        "--update-manifest",
        action="store_true",
        help="pin what was built; without MODEL, build and pin anew all that is pinned",
    )
    what.add_argument(
        "--check", action="store_true", help="compare the files with the pins; nothing is built"
    )
    build.add_argument(
        "--publish",
        metavar="STORE",
        help="with --update-manifest: copy the binary to this directory or URL, from where others "
        "fetch it (default: the manifest's store, where that is a directory)",
    )
    build.add_argument("--json", action="store_true", help="with --check: print JSON")
    add_options(
        build,
        *("--board", "--boards-file", "--qnnctx-toolchain", "--qnnctx-cache-dir"),
        *("--qnnctx-manifest", "--qnnctx-build-host", "--qnnctx-float-fallback"),
    )
    build.set_defaults(command=_build)


def _build(arguments: argparse.Namespace) -> int:
    _refuse_nonsense(arguments)
    if arguments.check:
        return _check(arguments)
    if arguments.update_manifest:
        if arguments.model is None:
            return repin_all(arguments, arguments.publish)
        return pin_model(arguments, _model(arguments), arguments.publish)
    workbench = open_workbench(arguments)
    print(build_and_tell(workbench, _model(arguments), workbench.target).path)
    return 0


def _refuse_nonsense(arguments: argparse.Namespace) -> None:
    if arguments.publish is not None and not arguments.update_manifest:
        raise UsageError(
            "--publish goes with --update-manifest", next_step="give both, or leave it out"
        )
    if arguments.json and not arguments.check:
        raise UsageError("--json goes with --check", next_step="give both, or leave it out")
    given = [f"--{name}" for name in _OF_A_MODEL if getattr(arguments, name)]
    if arguments.model is None:
        if not (arguments.check or arguments.update_manifest):
            raise UsageError("no model was named", next_step="qnnctx build MODEL.onnx --board NAME")
        if given:
            raise UsageError(f"{given[0]} needs a MODEL", next_step="name the model's ONNX file")
    elif arguments.check and given:
        raise UsageError(
            f"{given[0]} has no meaning with --check", next_step="leave it out: the pins tell it"
        )


def _model(arguments: argparse.Namespace) -> Model:
    from pytest_qnnctx.model import Model

    return Model(
        arguments.model,
        name=arguments.name,
        encodings=arguments.encodings,
        calibration=arguments.calibration,
        input_shapes=dict(_shape(text) for text in arguments.shape),
        reference=arguments.reference,
    )


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 1:
        raise UsageError(f"--shape {text} is not of the form INPUT=1,3,224,224")
    return name, shape


# --- checking ---------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    from pytest_qnnctx.build.pins.file_hashes import HashMemory
    from pytest_qnnctx.build.pins.manifest import read_manifest
    from pytest_qnnctx.build.pins.manifest_check import check_manifest

    settings = settings_of(arguments)
    manifest = read_manifest(settings.manifest or settings.root / MANIFEST)
    pins = _pins_of(manifest, arguments.model)
    with HashMemory(settings.cache_dir / HASHES_FILE) as memory:
        drifts = check_manifest(manifest, memory, pins=pins)
    drifted = {drift.pin for drift in drifts}
    if arguments.json:
        told = {
            "manifest": str(manifest.path),
            "pins": [pin.name for pin in pins],
            "unchanged": not drifts,
            "drifts": [asdict(drift) for drift in drifts],
        }
        print(json.dumps(told, indent=2))
    else:
        for drift in drifts:
            print(drift.message)
        if drifts:
            say(f"{len(drifted)} of {len(pins)} pins no longer agree with their files")
            if all(drift.kind == "source_changed" for drift in drifts):
                say("if that is wanted: qnnctx build --update-manifest")
        else:
            say(f"{_counted(len(pins))} unchanged{_unasked(manifest)}")
    return EXIT_PRODUCT if drifts else 0


def _counted(pins: int) -> str:
    return "1 pin is" if pins == 1 else f"{pins} pins are"


def _unasked(manifest: Manifest) -> str:
    """A store behind a URL is asked when a binary is fetched: the check costs no network."""
    if manifest.store is None or manifest.store.directory is not None:
        return ""
    return f" (the store {manifest.store} was not asked)"


def _pins_of(manifest: Manifest, model: Path | None) -> Sequence[Pin]:
    """All pins, or those of the ONNX file ``model``. Raises UsageError where it has none."""
    pins = sorted(manifest.pins.values(), key=lambda pin: pin.name)
    if model is None:
        return pins
    wanted = model.absolute().resolve()
    found = [
        pin for pin in pins if (manifest.folder / pin.sources["onnx"].path).resolve() == wanted
    ]
    if not found:
        listed = ", ".join(sorted({pin.sources["onnx"].path for pin in pins})[:8])
        raise UsageError(
            f"the manifest {manifest.path} pins no binary of {model}",
            next_step=f"pinned are {listed or 'none'}; pin it with --update-manifest",
        )
    return found
