"""A build that is killed at any stage leaves a store that the next build trusts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from qairt_project import QCS6490, Project, make_project
from standin_sdk import runs, set_quirks

from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.build.builder import build_artifact
from pytest_qnnctx.build.content_key import file_sha256
from pytest_qnnctx.build.store import Store

STAGES = ("qairt-converter", "qairt-quantizer", "qnn-context-binary-generator")
BUILD = """
import sys
from pathlib import Path
from qairt_project import QCS6490, Project
from pytest_qnnctx.build.builder import build_artifact
from pytest_qnnctx.build.store import Store
root, sdk = map(Path, sys.argv[1:])
project = Project(root, sdk)
build_artifact(
    project.model(), QCS6490, project.toolchain(), Store(root / "store"), progress=print
)
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    for name in ("QNN_SDK_ROOT", "QC_QNN_SDK_ROOT", "QC_BUILD_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return make_project(tmp_path)


def wait_for(what, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(what())


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill_during(project: Project, stage: str) -> int:
    """Start a build, SIGKILL its process while ``stage`` works; the tool's process id."""
    set_quirks(project.sdk, sleep_s={stage: 120})
    before = len(runs(project.sdk, stage))
    import pytest_qnnctx

    places = [Path(__file__).parent, Path(pytest_qnnctx.__file__).parent.parent]
    child = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(project.root), str(project.sdk)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        stdout=subprocess.DEVNULL,
    )
    try:
        reached = wait_for(
            lambda: len(runs(project.sdk, stage)) > before or child.poll() is not None
        )
        assert reached
        assert child.poll() is None, f"the build ended before {stage}"
    finally:
        child.kill()
        child.wait()
    return int(runs(project.sdk, stage)[-1]["pid"])


def test_a_build_killed_at_each_stage_leaves_nothing_behind(project):
    store = Store(project.root / "store")
    tools = [kill_during(project, stage) for stage in STAGES]
    artifacts = project.root / "store" / "artifacts"
    assert not artifacts.exists() or not list(artifacts.iterdir())
    # The SDK's tools ended with the process that had started them.
    assert wait_for(lambda: all(map(has_ended, tools)), 15)

    set_quirks(project.sdk)
    artifact = build_artifact(
        project.model(), QCS6490, project.toolchain(), store, progress=lambda line: None
    )
    assert read_binary(artifact.path).htp_arch == "v68"
    assert file_sha256(artifact.path) == artifact.sha256
    assert artifact.provenance is not None
    assert artifact.provenance.toolchain["name"] == "qairt"
    assert not list((project.root / "store" / "building").iterdir())

    worked = len(runs(project.sdk))
    again = build_artifact(
        project.model(), QCS6490, project.toolchain(), store, progress=lambda line: None
    )
    assert again.sha256 == artifact.sha256
    assert len(runs(project.sdk)) == worked
