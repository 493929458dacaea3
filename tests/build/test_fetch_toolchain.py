"""Toolchain ``fetch``: what is pinned is what is used, and the model under the pin is the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loopback_store import serving
from pin_samples import BINARY, V68, manifest_of, pin_of, pointer, provenance, sha256

from pytest_qnnctx.build.builder import build_artifact, read_sources
from pytest_qnnctx.build.files import model_files
from pytest_qnnctx.build.ort_toolchain import OrtToolchain
from pytest_qnnctx.build.pins.manifest import change_manifest, write_manifest
from pytest_qnnctx.build.pins.pinning import model_of_pin, pin_of_artifact, put_pin
from pytest_qnnctx.build.pins.publish import publish
from pytest_qnnctx.build.pins.toolchain import FetchToolchain
from pytest_qnnctx.build.quantize.calibration_inputs import calibration_sha256
from pytest_qnnctx.build.store import Store
from pytest_qnnctx.config import Settings
from pytest_qnnctx.errors import Finding, InfrastructureError, ProductFailure, UsageError
from pytest_qnnctx.model import Model, Target

AIMET = Path(__file__).parent.parent / "data" / "aimet"
NET = "net for QCS6490/v68"


class Project:
    """A directory with a manifest, a model ``net``, and its binary in a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = manifest_of(folder, "net", "other", store="binaries")
        self.model = model_of_pin(self.manifest, self.manifest.pins[NET])
        self.binary = folder / "binaries" / "net.bin"
        self.binary.parent.mkdir()
        self.binary.write_bytes(BINARY)
        self.told: list[str] = []
        write_manifest(self.manifest)

    def toolchain(self, cache: str = "cache") -> FetchToolchain:
        return FetchToolchain(
            Settings(
                self.folder, cache_dir=self.folder / cache, manifest=self.folder / "qnnctx.lock"
            )
        )

    def fetch(self, model: Model | None = None, *, target: Target = V68, cache: str = "cache"):
        return build_artifact(
            model or self.model,
            target,
            self.toolchain(cache),
            Store(self.folder / cache),
            progress=self.told.append,
        )

    def pin(self, **changes) -> None:
        """Change the pin of ``net``."""
        self.manifest = self.manifest.with_pin(replace(self.manifest.pins[NET], **changes))
        write_manifest(self.manifest)


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_the_pinned_bytes_come_with_what_is_known_of_them(project):
    artifact = project.fetch()
    assert artifact.path.read_bytes() == BINARY
    assert artifact.path.name == "net_w8a16_v68.bin"
    made, pinned = artifact.provenance, project.manifest.pins[NET].provenance
    assert made.toolchain["name"] == "fetch"
    assert made.origin == {
        "toolchain": {"name": "qairt", "version": "2.37.0", "qnn_version": "2.37.0.1"},
        "built_at": "2026-01-02T03:04:05+00:00",
        "build_seconds": 12.5,
        "builder": "somebody",
        "host": "buildbox (Linux x86_64)",
    }
    for name in ("quantization", "float_ops", "host_ops", "encodings", "asked", "commands", "ddr"):
        assert getattr(made, name) == getattr(pinned, name), name
    assert "net.bin" in project.told[0]


def test_what_was_fetched_once_needs_no_store(project):
    first = project.fetch()
    shutil.rmtree(project.binary.parent)
    assert project.fetch() == first


def test_findings_of_the_build_are_carried_over(project):
    found = (Finding("float_fallback_allowed", "net", "asked for"),)
    project.pin(provenance=provenance("net", findings=found, ddr=({"spill_bytes": 7},)))
    made = project.fetch().provenance
    assert made.findings == found
    assert made.ddr == ({"spill_bytes": 7},)


def test_another_pin_is_fetched_anew(project):
    first = project.fetch()
    project.binary.write_bytes(b"a newer binary")
    pin = pin_of(project.model, project.folder, b"a newer binary")
    project.pin(binary=pin.binary, provenance=pin.provenance)
    second = project.fetch()
    assert second.path.read_bytes() == b"a newer binary"
    assert second.provenance.key != first.provenance.key


def test_another_word_about_the_same_bytes_counts_too(project):
    project.fetch()
    project.pin(provenance=provenance("net", float_ops=("conv1 (Conv)",)))
    shutil.rmtree(project.binary.parent)
    assert project.fetch().provenance.float_ops == ("conv1 (Conv)",)


# --- the model under the pin ------------------------------------------------------------------


def test_a_changed_model_is_the_products_failure(project):
    pinned = project.manifest.pins[NET].sources["onnx"].sha256
    project.model.path.write_bytes(b"a new graph")
    with pytest.raises(ProductFailure, match="the model under the pin") as caught:
        project.fetch()
    told = str(caught.value)
    assert f"onnx {pinned[:12]}... pinned, {sha256(b'a new graph')[:12]}... now" in told
    assert "--update-manifest" in told


def test_each_changed_file_is_a_finding(project):
    project.model.path.write_bytes(b"a new graph")
    project.model.encodings.write_text("{ }")
    with pytest.raises(ProductFailure) as caught:
        project.fetch()
    found = caught.value.findings
    assert {finding.kind for finding in found} == {"source_changed"}
    assert [finding.subject for finding in found] == ["encodings", "onnx"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"encodings": None}, r"encodings .* pinned, not there now"),
        ({"input_shapes": {"x": (1, 3)}}, r"input_shapes none pinned, x \[1, 3\] now"),
        ({"calibration": ({"x": np.zeros((1, 3), np.float32)},)}, r"calibration inputs .*not pinn"),
    ],
)
def test_another_way_to_ask_for_it_is_a_change(project, change, told):
    with pytest.raises(ProductFailure, match=told):
        project.fetch(replace(project.model, **change))


def test_the_same_inputs_from_code_are_no_change(project):
    samples = ({"x": np.ones((1, 3), np.float32)},)
    project.pin(calibration=calibration_sha256(samples))
    assert project.fetch(replace(project.model, calibration=lambda: samples))
    with pytest.raises(ProductFailure, match="calibration inputs"):
        project.fetch(
            replace(
                project.model,
                calibration=(
                    {
                        "x": np.ones((1, 4)),
                    },
                ),
            )
        )


def test_a_reference_of_its_own_is_no_change(project):
    reference = project.folder / "float.onnx"
    reference.write_bytes(b"the FP32 model")
    assert project.fetch(replace(project.model, reference=reference))


@pytest.mark.parametrize("role", ["path", "encodings"])
def test_a_pointer_in_a_files_place_is_named(project, role):
    file = getattr(project.model, role)
    file.write_bytes(pointer(file.read_bytes()))
    with pytest.raises(InfrastructureError, match="Git LFS pointer") as caught:
        project.fetch()
    assert file.name in caught.value.what
    assert "git lfs pull" in caught.value.next_step


def test_a_pointer_in_an_input_lists_place_is_named(project):
    listed = project.folder / "inputs.txt"
    listed.write_bytes(pointer(b"x:=a.raw"))
    with pytest.raises(InfrastructureError, match=r"inputs\.txt is a Git LFS pointer"):
        model_files(replace(project.model, calibration=listed))


# --- what is missing --------------------------------------------------------------------------


def test_without_a_manifest(tmp_path):
    toolchain = FetchToolchain(Settings(tmp_path))
    assert not toolchain.pins(Model(tmp_path / "net.onnx"), V68)
    with pytest.raises(InfrastructureError, match=r"no manifest") as caught:
        toolchain.identify()
    assert "--update-manifest" in caught.value.next_step


def test_a_manifest_that_was_named_must_be_there(tmp_path):
    toolchain = FetchToolchain(Settings(tmp_path, manifest=tmp_path / "my.lock"))
    with pytest.raises(UsageError, match=r"my\.lock"):
        toolchain.pins(Model(tmp_path / "net.onnx"), V68)


def test_a_broken_manifest_is_not_passed_over(project):
    (project.folder / "qnnctx.lock").write_text("<<<<<<< HEAD\n")
    with pytest.raises(UsageError, match="merge conflict"):
        project.toolchain().pins(project.model, V68)


def test_what_is_pinned_is_said_where_something_is_not(project):
    v73 = Target("SM8550", "v73")
    assert project.toolchain().pins(project.model, V68)
    assert not project.toolchain().pins(project.model, v73)
    with pytest.raises(UsageError, match="pins no binary of model net for SM8550") as caught:
        project.fetch(target=v73)
    assert "net for QCS6490/v68, other for QCS6490/v68" in caught.value.what
    assert "--update-manifest" in caught.value.next_step


def test_without_a_store_the_cache_is_all_there_is(project):
    artifact = project.fetch()
    project.manifest = replace(project.manifest, store=None)
    project.pin(binary=replace(project.manifest.pins[NET].binary, file=None))
    assert project.fetch().sha256 == artifact.sha256
    with pytest.raises(InfrastructureError, match="names no store") as caught:
        project.fetch(cache="empty")
    assert "--publish" in caught.value.next_step


def test_a_binary_that_was_not_published(project):
    project.pin(binary=replace(project.manifest.pins[NET].binary, file=None))
    with pytest.raises(InfrastructureError, match=r"was not published to .*binaries"):
        project.fetch()


def test_a_replaced_binary_leaves_nothing_in_the_cache(project):
    project.binary.write_bytes(b"x" + BINARY[1:])
    with pytest.raises(ProductFailure, match="replaced or damaged"):
        project.fetch()
    assert list((project.folder / "cache" / "building").iterdir()) == []
    project.binary.write_bytes(BINARY)
    assert project.fetch().path.read_bytes() == BINARY


def test_from_a_store_that_fails_once(project, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as store:
        store.files["/qnn/net.bin"] = BINARY
        store.answers = ["cut"]
        project.manifest = project.manifest.with_store(store.url)
        write_manifest(project.manifest)
        assert project.fetch().path.read_bytes() == BINARY
    assert any("trying again" in line for line in project.told)


# --- from the compiler and back ---------------------------------------------------------------


def test_built_pinned_published_and_fetched(tmp_path):
    for name in ("tiny.onnx", "aim_100.data", "tiny_1.0.0.encodings"):
        shutil.copy(AIMET / name, tmp_path)
    model = Model(tmp_path / "tiny.onnx", encodings=tmp_path / "tiny_1.0.0.encodings")
    cache = Store(tmp_path / "cache")
    built = build_artifact(model, V68, OrtToolchain(), cache, progress=lambda line: None)
    lock = tmp_path / "qnnctx.lock"

    def change(manifest):
        manifest = manifest.with_store("binaries")
        pinned = publish(built, manifest.store, lambda line: None)
        pin = pin_of_artifact(
            tmp_path,
            model,
            V68,
            built,
            files=model_files(model),
            calibration=None,
            file=pinned.file,
        )
        return put_pin(manifest, pin)

    change_manifest(lock, change, lock_dir=tmp_path / "locks")

    fetched = {}
    for where in ("another cache", "cache"):
        toolchain = FetchToolchain(Settings(tmp_path, cache_dir=tmp_path / where, manifest=lock))
        fetched[where] = build_artifact(
            model, V68, toolchain, Store(tmp_path / where), progress=lambda line: None
        )
    afar, near = fetched["another cache"], fetched["cache"]
    assert afar.path.read_bytes() == near.path.read_bytes() == built.path.read_bytes()
    assert afar.path.name == built.path.name
    assert afar.provenance.origin["toolchain"] == built.provenance.toolchain
    assert afar.provenance.origin["host"] == built.provenance.host
    assert afar.provenance.files == built.provenance.files
    assert afar.provenance.encodings == built.provenance.encodings
    assert afar.provenance.source_key == read_sources(model, V68).key
    assert afar.quantized_model is None
    assert near.quantized_model.read_bytes() == built.quantized_model.read_bytes()
    kept = json.loads((afar.path.parent / "provenance.json").read_text())
    assert kept["origin"]["toolchain"]["name"] == "ort"
