"""The same acceptance test, whichever way the binary came: the same verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnxruntime_qnn
import pytest
from projects import ENCODED, Project
from standin_sdk import make_model_library, make_sdk, runs

VERSIONS = ("2.37.1.250807093845", "2.45.40.260406")
#: The newer SDK's quantizer demands calibration inputs, the encodings notwithstanding.
CALIBRATED = (
    'qnn_model("net.onnx", encodings="net.encodings", '
    'calibration=[{"x": image} for image, _ in nets.images()])\n'
)
GATES = (
    "no_fp16\nnpu_only\nencodings_applied\nspill_zero\nmax_vtcm_mb(2)\nmax_binary_mb(5)\n"
    'task_metric("top1", min=0.9, max_drop=0.05)'
)
MARKERS = ENCODED + GATES
BOARD = """\
boards:
  here:
    soc: qcs6490
    htp_arch: v68
    transport: local
    runtime: {{lib_dir: {lib_dir}}}
    staging_dir: {staging}
"""


@pytest.fixture
def own_cache(classifier: Project, tmp_path: Path) -> Project:
    """The classifier, with a cache of its own: what is built here is built once, and here."""
    classifier.cache = tmp_path / "cache"
    return classifier


def board_with_generator(project: Project, sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board on this host: Qualcomm's emulator, the generator's stand-in, a model library."""
    make_model_library(
        project.path / "net.onnx", project.path, encodings=project.path / "net.encodings"
    )
    lib_dir = project.path / "usr_lib"
    lib_dir.mkdir()
    for library in Path(onnxruntime_qnn.__file__).parent.rglob("libQnn*.so"):
        (lib_dir / library.name).symlink_to(library)
    there = BOARD.format(lib_dir=lib_dir, staging=project.path / "staging")
    (project.path / "boards.yaml").write_text(there)
    tools = sdk / "bin" / "aarch64-oe-linux-gcc11.2"
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("QC_QAIRT_VERSION", sdk.name)


def qnnctx(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest_qnnctx.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=project.path,
    )


def measured(ran) -> dict[str, tuple]:
    """Verdict and value of each gate; a version or a size may differ, a verdict may not."""
    differ = ("runtime", "max_binary_mb")
    return {
        gate["gate"]: (gate["verdict"], None if gate["gate"] in differ else gate["measured"])
        for gate in ran.test()["gates"]
    }


def test_all_toolchains_give_the_same_verdicts(own_cache, tmp_path, monkeypatch):
    project = own_cache
    monkeypatch.setenv("HOME", str(tmp_path))
    by_ort = project.judge(MARKERS, arguments=("--qnnctx-toolchain=ort",))
    by_ort.result.assert_outcomes(passed=1)

    sdk = make_sdk(tmp_path / VERSIONS[0], VERSIONS[0])
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk))
    by_qairt = project.judge(MARKERS, arguments=("--qnnctx-toolchain=qairt",))
    assert by_qairt.result.ret == 0, by_qairt.text

    board_with_generator(project, sdk, monkeypatch)
    by_board = project.judge(MARKERS, arguments=("--qnnctx-toolchain=onboard",), board="here")
    assert by_board.result.ret == 0, by_board.text

    built = qnnctx(
        project, "build", "net.onnx", "--encodings", "net.encodings", "--board", "sim",
        "--qnnctx-toolchain", "qairt", "--qnnctx-cache-dir", str(project.cache),
        "--update-manifest", "--publish", "pinned",
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    monkeypatch.delenv("QNN_SDK_ROOT")
    project.cache = tmp_path / "another cache"
    by_pin = project.judge(MARKERS, arguments=("--qnnctx-toolchain=fetch",))
    assert by_pin.result.ret == 0, by_pin.text

    for ran in (by_qairt, by_board, by_pin):
        assert measured(ran) == measured(by_ort)
    hashes = [ran.test()["artifact"]["sha256"] for ran in (by_qairt, by_pin)]
    assert hashes[0] == hashes[1]
    for ran, name in ((by_ort, "ort"), (by_qairt, "qairt"), (by_board, "onboard")):
        assert ran.test()["artifact"]["provenance"]["toolchain"]["name"] == name
    origin = by_pin.test()["artifact"]["provenance"]["origin"]
    assert origin["toolchain"]["name"] == "qairt"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_of_the_sdk_builds_for_acceptance(own_cache, tmp_path, monkeypatch, version):
    sdk = make_sdk(tmp_path / version, version)
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk))
    ran = own_cache.judge(CALIBRATED + GATES, arguments=("--qnnctx-toolchain=qairt",))
    assert ran.result.ret == 0, ran.text
    assert set(ran.verdicts().values()) == {"pass"}


def test_two_workers_and_two_sessions_run_each_stage_once(own_cache, tmp_path, monkeypatch):
    project = own_cache
    sdk = make_sdk(tmp_path / "sdk", VERSIONS[0])
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk))
    marker = ENCODED.strip()
    project.tests(
        f"@pytest.mark.{marker}\ndef test_one(context_binary): pass\n\n"
        f"@pytest.mark.{marker}\ndef test_two(context_binary): pass\n"
    )
    arguments = [
        *(sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--board=sim"),
        *("--qnnctx-toolchain=qairt", f"--qnnctx-cache-dir={project.cache}"),
    ]
    sessions = [
        subprocess.Popen(
            arguments,
            cwd=project.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    for session in sessions:
        text, _ = session.communicate(timeout=180)
        assert "2 passed" in text, text
    for tool in ("qairt-converter", "qairt-quantizer", "qnn-context-binary-generator"):
        assert len(runs(sdk, tool)) == 1


def test_a_float_fallback_that_was_allowed_is_named(own_cache, tmp_path, monkeypatch):
    sdk = make_sdk(tmp_path / "sdk", VERSIONS[0])
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk))
    ran = own_cache.judge(
        ENCODED + "no_fp16",
        arguments=("--qnnctx-toolchain=qairt", "--qnnctx-float-fallback"),
    )
    kinds = [f["kind"] for f in ran.test()["artifact"]["provenance"]["findings"]]
    assert "float_fallback_allowed" in kinds
    assert "float fallback" in ran.text.lower()


def test_options_that_the_sdk_ignored_fail_their_gate(own_cache, tmp_path, monkeypatch):
    sdk = make_sdk(tmp_path / "sdk", VERSIONS[1], quirks=["ignore_vtcm_mb"])
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk))
    ran = own_cache.judge(CALIBRATED, arguments=("--qnnctx-toolchain=qairt",))
    gate = ran.gate("options_applied")
    assert gate["verdict"] == "fail"
    assert "vtcm_mb" in gate["evidence"]


def test_auto_says_why(own_cache, tmp_path, monkeypatch):
    sdk = make_sdk(tmp_path / "sdk", VERSIONS[0])
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk))
    first = own_cache.judge(ENCODED)
    provenance = first.test()["artifact"]["provenance"]
    assert provenance["toolchain"]["name"] == "qairt"
    assert provenance["choice"].startswith("auto: qairt")
    monkeypatch.delenv("QNN_SDK_ROOT")
    again = own_cache.judge(ENCODED)
    provenance = again.test()["artifact"]["provenance"]
    assert provenance["toolchain"]["name"] == "qairt"
    assert "in the cache" in provenance["choice"]
    assert "in the cache" in again.text
    assert json.dumps(provenance["files"]) == json.dumps(
        first.test()["artifact"]["provenance"]["files"]
    )
