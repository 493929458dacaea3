"""Pins made by hand: small files, a binary of plain bytes, and the provenance of a build."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pytest_qnnctx.build.pins.manifest import Manifest, Pin, PinnedBinary, Source
from pytest_qnnctx.model import EncodingsUse, Model, Provenance, Target

V68 = Target("QCS6490", "v68", 93, 2, has_float=False)
BINARY = bytes(range(256)) * 40


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def provenance(model: str, content: bytes = BINARY, **more) -> Provenance:
    values = {
        "key": "k" * 64,
        "model": model,
        "files": {},
        "target": {"soc": "QCS6490", "htp_arch": "v68"},
        "toolchain": {"name": "qairt", "version": "2.37.0", "qnn_version": "2.37.0.1"},
        "quantization": "w8a16",
        "commands": (("qairt-converter", "--input_network", "net.onnx"),),
        "built_at": "2026-01-02T03:04:05+00:00",
        "build_seconds": 12.5,
        "builder": "somebody",
        "host": "buildbox (Linux x86_64)",
        "float_ops": (),
        "encodings": EncodingsUse("1.0.0", 6, applied=5, unseen=("c",)),
        "asked": {"htp_arch": "v68", "vtcm_mb": 2},
        "sha256": sha256(content),
        "size_bytes": len(content),
    }
    return Provenance(**{**values, **more})


def model_in(folder: Path, name: str = "net") -> Model:
    """A model of two files under ``folder``; nothing here reads more of an ONNX than its bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.onnx").write_bytes(b"the graph of " + name.encode())
    (folder / f"{name}.encodings").write_text("{}")
    return Model(folder / f"{name}.onnx", encodings=folder / f"{name}.encodings")


def pin_of(
    model: Model, folder: Path, content: bytes = BINARY, file: str | None = "net.bin"
) -> Pin:
    """A pin of ``model`` for a manifest in ``folder``."""
    files = {"onnx": model.path, "encodings": model.encodings}
    return Pin(
        model=model.name,
        soc="QCS6490",
        htp_arch="v68",
        sources={
            role: Source(path.relative_to(folder).as_posix(), sha256(path.read_bytes()))
            for role, path in files.items()
        },
        binary=PinnedBinary(file, sha256(content), len(content)),
        provenance=provenance(model.name, content),
    )


def manifest_of(folder: Path, *names: str, store: str | None = None) -> Manifest:
    """A manifest with a pin for each of ``names``, whose files are in ``folder``/models."""
    manifest = Manifest(folder / "qnnctx.lock")
    for name in names:
        pin = pin_of(model_in(folder / "models", name), folder, file=f"{name}.bin")
        manifest = manifest.with_pin(pin)
    return manifest if store is None else manifest.with_store(store)


def pointer(content: bytes) -> bytes:
    """What Git LFS keeps in place of ``content``."""
    return (
        "version https://git-lfs.github.com/spec/v1\n"
        f"oid sha256:{sha256(content)}\nsize {len(content)}\n"
    ).encode()
