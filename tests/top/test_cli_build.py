"""``qnnctx build``: pinning, publishing and checking, as a user calls it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

AIMET = Path(__file__).parent.parent / "data" / "aimet"
TINY = ("tiny.onnx", "--encodings", "tiny_1.0.0.encodings")
NAME = "tiny for QCS6490/v68"


def build(cwd: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest_qnnctx.cli", "build", *arguments]
    return subprocess.run(
        argv,
        check=False,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environ},
    )


@pytest.fixture(scope="module")
def pinned(tmp_path_factory) -> Path:
    """A project whose model was built, pinned and published."""
    folder = tmp_path_factory.mktemp("pinned")
    for name in ("tiny.onnx", "aim_100.data", "tiny_1.0.0.encodings"):
        shutil.copy(AIMET / name, folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = build(folder, *TINY, "--board", "sim", "--update-manifest", "--publish", "binaries")
    assert done.returncode == 0, done.stderr
    assert f"pinned {NAME} in qnnctx.lock" in done.stderr
    assert Path(done.stdout.strip()).is_file()
    return folder


@pytest.fixture
def project(pinned, tmp_path) -> Path:
    """A copy of it, to be changed; its cache comes along."""
    return Path(shutil.copytree(pinned, tmp_path / "project"))


def lock(folder: Path, name: str = "qnnctx.lock") -> dict:
    return json.loads((folder / name).read_text())


def test_the_manifest_says_what_was_built(pinned):
    data = lock(pinned)
    pin = data["pins"][NAME]
    assert data["store"] == "binaries"
    assert set(pin["sources"]) == {"onnx", "encodings", "external_data:aim_100.data"}
    published = pinned / "binaries" / pin["binary"]["file"]
    assert published.name.startswith("tiny_w8a16_v68-")
    assert published.stat().st_size == pin["binary"]["size_bytes"]
    assert str(pinned) not in (pinned / "qnnctx.lock").read_text()


def test_check_says_so_and_0_when_nothing_changed(project):
    done = build(project, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "qnnctx: 1 pin is unchanged\n")
    done = build(project, "--check", "tiny.onnx", "--json")
    told = json.loads(done.stdout)
    assert told["unchanged"] is True
    assert told["pins"] == [NAME]


def test_check_is_1_and_names_what_changed(project):
    data = project / "aim_100.data"
    data.write_bytes(bytes(data.stat().st_size))
    done = build(project, "--check")
    assert done.returncode == 1
    assert done.stdout.startswith(f"{NAME}: external_data:aim_100.data aim_100.data changed: ")
    assert "1 of 1 pins" in done.stderr
    told = json.loads(build(project, "--check", "--json").stdout)
    (drift,) = told["drifts"]
    assert (drift["pin"], drift["kind"]) == (NAME, "source_changed")


def test_check_finds_a_binary_that_is_gone(project):
    shutil.rmtree(project / "binaries")
    done = build(project, "--check", "tiny.onnx")
    assert done.returncode == 1
    assert "binary" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--check", "other.onnx"), "tiny.onnx"),
        (("--check", "--name", "x", "tiny.onnx"), "--name"),
        (("--check", "--publish", "x"), "--publish"),
        (("--json", "tiny.onnx"), "--json"),
        ((), "no model"),
        (("--update-manifest", "--encodings", "x"), "--encodings"),
        (("--update-manifest", "--qnnctx-toolchain", "fetch", "tiny.onnx"), "fetch"),
        (("--check", "--qnnctx-manifest", "my.lock"), "my.lock"),
    ],
)
def test_what_makes_no_sense(project, arguments, told):
    done = build(project, *arguments)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_check_loads_nothing_heavy(project):
    code = (
        "import sys\nfrom pytest_qnnctx.cli import main\n"
        "status = main(['build', '--check'])\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'fsspec', 'aiohttp', 'pytest', 'filelock'}\n"
        "print(status, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0 []"


def test_without_a_manifest_check_says_how_to_make_one(tmp_path):
    done = build(tmp_path, "--check")
    assert done.returncode == 2
    assert "--update-manifest" in done.stderr


def test_pinning_again_what_is_the_same_changes_nothing(project):
    before = (project / "qnnctx.lock").read_text()
    shutil.rmtree(project / ".qnnctx-cache")  # it is really built again
    done = build(project, "--update-manifest")
    assert done.returncode == 0, done.stderr
    assert "as before" in done.stderr
    assert (project / "qnnctx.lock").read_text() == before


def test_all_pins_are_renewed_and_published_again(project):
    shutil.copy(project / "tiny_1.0.0.encodings", project / "old")
    data = json.loads((project / "tiny_1.0.0.encodings").read_text())
    data["activation_encodings"][0]["scale"] = [
        2 * scale for scale in data["activation_encodings"][0]["scale"]
    ]
    (project / "tiny_1.0.0.encodings").write_text(json.dumps(data))
    assert build(project, "--check").returncode == 1
    done = build(project, "--update-manifest")
    assert done.returncode == 0, done.stderr
    assert ", before " in done.stderr
    assert build(project, "--check").returncode == 0
    assert len(list((project / "binaries").iterdir())) == 2


def test_a_pin_whose_files_are_gone_stays_and_is_told(project):
    (project / "tiny_1.0.0.encodings").unlink()
    before = (project / "qnnctx.lock").read_text()
    done = build(project, "--update-manifest")
    assert done.returncode == 1
    assert "1 of 1 pins could not be renewed" in done.stderr
    assert f"{NAME} stays as it is" in done.stderr
    assert (project / "qnnctx.lock").read_text() == before


def test_a_model_that_does_not_build_keeps_its_pin(project):
    (project / "tiny_1.0.0.encodings").write_text("{}")
    before = (project / "qnnctx.lock").read_text()
    done = build(project, "--update-manifest")
    assert done.returncode == 1
    assert "1 of 1 pins could not be renewed" in done.stderr
    assert (project / "qnnctx.lock").read_text() == before


def test_another_manifest_without_a_store(project):
    mine = ("--qnnctx-manifest", "mine.lock")
    done = build(project, *TINY, "--board", "sim", "--update-manifest", *mine, "--name", "mine")
    assert done.returncode == 0, done.stderr
    assert "--publish" in done.stderr
    data = lock(project, "mine.lock")
    assert "store" not in data
    assert data["pins"]["mine for QCS6490/v68"]["binary"]["file"] is None
    assert build(project, "--check", *mine).returncode == 0
    published = build(project, *TINY, "--board", "sim", "--update-manifest", *mine,
                  "--name", "mine", "--publish", "../shared")  # fmt: skip
    assert published.returncode == 0, published.stderr
    data = lock(project, "mine.lock")
    assert data["store"] == "../shared"
    assert data["pins"]["mine for QCS6490/v68"]["binary"]["file"]


def test_a_store_that_may_not_be_written_down(project):
    secret = "https://me:hunter2@host/x"
    done = build(project, *TINY, "--board", "sim", "--update-manifest", "--publish", secret)
    assert done.returncode == 2
    assert "~/.netrc" in done.stderr
    assert "hunter2" not in done.stderr


def test_the_environment_names_the_manifest_too(project):
    (project / "qnnctx.lock").rename(project / "elsewhere.lock")
    assert build(project, "--check", QNNCTX_MANIFEST="elsewhere.lock").returncode == 0


@pytest.mark.parametrize("inside", [True, False])
def test_an_absolute_directory(project, tmp_path, inside):
    folder = project / "deep" / "store" if inside else tmp_path / "a store"
    mine = ("--qnnctx-manifest", "mine.lock", "--publish", str(folder))
    done = build(project, *TINY, "--board", "sim", "--update-manifest", *mine)
    assert done.returncode == 0, done.stderr
    assert lock(project, "mine.lock")["store"] == ("deep/store" if inside else folder.as_uri())
    assert len(list(folder.iterdir())) == 1
