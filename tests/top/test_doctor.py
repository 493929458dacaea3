"""``qnnctx doctor`` on machines with nothing, with half of it, with everything, and with faults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest
from standin_sdk import make_sdk

import pytest_qnnctx
from pytest_qnnctx.build.pins.manifest import Manifest, Pin, PinnedBinary, Source, write_manifest
from pytest_qnnctx.model import Provenance

pytestmark = pytest.mark.skipif(
    Path("/opt/qcom/aistack/qairt").exists(), reason="a QAIRT SDK is installed on this machine"
)
V237 = "2.37.1.250807093845"
BOARDS = """\
boards:
  bench: {soc: qcs6490, htp_arch: v68, transport: local, tags: [lab]}
"""


@dataclass(frozen=True)
class Machine:
    """A project and a home directory of its own; ``python`` is the interpreter there."""

    root: Path
    python: str = sys.executable

    @property
    def project(self) -> Path:
        return self.root / "project"

    def configure(self, text: str, where: str = "project") -> Path:
        path = self.root / where / ".qualcomm-env"
        path.write_text(text)
        path.chmod(0o600)
        return path

    def doctor(self, *arguments: str, **env: str) -> Told:
        hidden = ("QC_", "QNNCTX_", "QNN_SDK_ROOT")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        done = subprocess.run(
            [self.python, "-m", "pytest_qnnctx.cli", "doctor", *arguments],
            check=False,
            cwd=self.project,
            env={**kept, "HOME": str(self.root / "home"), **env},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stderr == ""
        return Told(done.returncode, done.stdout)


@dataclass(frozen=True)
class Told:
    """What the doctor printed; ``rows`` maps each part to its state and what was found."""

    status: int
    text: str

    @property
    def rows(self) -> dict[str, tuple[str, str]]:
        lines = re.findall(r"^(\S+) +([^:]+): (.*)$", self.text, re.MULTILINE)
        return {what: (state, found) for state, what, found in lines}

    def to_do(self) -> list[str]:
        _, _, rest = self.text.partition("\nTo do:\n")
        return [line.strip() for line in rest.partition("\n\n")[0].splitlines()]

    def fits_a_screen(self) -> bool:
        lines = self.text.splitlines()
        # A path is as long as it is: what else there is must be short.
        bare = [re.sub(r"/\S+", "/p", line) for line in lines]
        return len(lines) <= 24 and max(map(len, bare)) <= 200


def make_machine(root: Path, python: str = sys.executable) -> Machine:
    for folder in ("project", "home"):
        (root / folder).mkdir()
    (root / "project" / "pytest.ini").write_text("[pytest]\n")
    return Machine(root, python)


@pytest.fixture
def machine(tmp_path) -> Machine:
    return make_machine(tmp_path)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory) -> str:
    """An interpreter with all that is installed here but ``onnxruntime-qnn``."""
    root = tmp_path_factory.mktemp("bare") / "env"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(root)
    (packages,) = root.glob("lib/python*/site-packages")
    left_out = ("onnxruntime_qnn", "__pycache__")
    for folder in map(Path, sys.path):
        if folder.name in ("site-packages", "dist-packages") and folder.is_dir():
            for entry in folder.iterdir():
                link = packages / entry.name
                # A .pth may lead back to a directory with all of it.
                if not (entry.name.startswith(left_out) or entry.suffix == ".pth" or link.exists()):
                    link.symlink_to(entry)
    ours = Path(pytest_qnnctx.__file__).parent.parent
    if not ours.name.endswith("-packages"):
        (packages / "project.pth").write_text(str(ours))
    return str(root / "bin" / "python")


def pin_something(project: Path) -> None:
    """A manifest as ``qnnctx build --update-manifest`` writes it, without a build."""
    made = Provenance(
        key="k" * 64,
        model="net",
        files={},
        target={"soc": "QCS6490", "htp_arch": "v68"},
        toolchain={"name": "ort", "version": "1", "qnn_version": "2.51.0"},
        quantization="w8a8",
        commands=(),
        built_at="2026-01-02T03:04:05+00:00",
        build_seconds=1.0,
        builder="somebody",
        host="here",
        sha256="0" * 64,
        size_bytes=1,
    )
    sources = {"onnx": Source("net.onnx", "1" * 64)}
    pin = Pin("net", "QCS6490", "v68", sources, PinnedBinary(None, "0" * 64, 1), made)
    write_manifest(Manifest(project / "qnnctx.lock").with_pin(pin))


def sdk_in(machine: Machine, **how) -> Path:
    return make_sdk(machine.root / "qairt" / V237, V237, **how)


# --- three machines ---------------------------------------------------------------------------


def test_a_machine_with_nothing(tmp_path, bare_python):
    told = make_machine(tmp_path, bare_python).doctor()
    assert told.status == 75
    assert told.fits_a_screen()
    missing = {what for what, (state, _) in told.rows.items() if state == "MISSING"}
    assert missing == {"toolchain", "QNN system library", "board sim"}
    # One command gives all three, and is said once.
    (step,) = told.to_do()
    assert "pip install 'pytest-qnnctx[sim]'" in step
    assert all(what in step for what in missing)
    assert told.text.count("pip install") == 1
    # What nobody asked for is no fault, and how to get it is said.
    optional = {what for what, (state, _) in told.rows.items() if state == "-"}
    toolchains = {f"toolchain {name}" for name in ("qairt", "ort", "onboard", "fetch")}
    assert optional == {".qualcomm-env", "boards file", *toolchains}
    for word in ("QC_QNN_SDK_ROOT", "QC_SETUP_VERSION=1", "--update-manifest", "boards.yaml"):
        assert word in told.text


def test_a_machine_with_a_half_written_configuration(machine):
    path = machine.configure("QC_QNN_SDK_ROOT=/opt/qairt\nQC_BUILD_HOST=\n")
    told = machine.doctor()
    assert told.status == 2
    assert told.fits_a_screen()
    state, found = told.rows[".qualcomm-env"]
    assert state == "WRONG"
    assert found.startswith(f"'{path}' is half-written: its QC_SETUP_VERSION is missing")
    assert "it has QC_QNN_SDK_ROOT;" in found
    assert "without a value: QC_BUILD_HOST, QC_QAIRT_VERSION" in found
    # One fault: what hangs on the file waits for it.
    assert told.text.count("half-written") == 1
    for what in ("toolchain qairt", "toolchain onboard", "toolchain"):
        assert told.rows[what] == ("waits", "for .qualcomm-env")
    (step,) = told.to_do()
    assert step == ".qualcomm-env: complete it and end it with the line QC_SETUP_VERSION=1"
    assert told.rows["toolchain ort"][0] == "ok"
    assert told.rows["board sim"][0] == "ok"
    assert "/opt/qairt" not in told.text  # a value may be a secret that was put there by mistake


def test_a_machine_with_everything(machine):
    sdk = sdk_in(machine)
    machine.configure(
        f"QC_TOPOLOGY=A\nQC_BUILD_HOST=\nQC_QNN_SDK_ROOT='{sdk}'\nQC_QAIRT_VERSION={V237}\n"
        "QC_HTP_ARCH=v68\nQC_SETUP_VERSION=1\n"
    )
    (machine.project / "boards.yaml").write_text(BOARDS)
    pin_something(machine.project)
    told = machine.doctor("--board", "lab")
    assert told.status == 0, told.text
    assert told.fits_a_screen()
    assert {state for state, _ in told.rows.values()} == {"ok"}
    assert "To do" not in told.text
    assert told.text.splitlines()[-1].startswith("Next: pytest --board")
    rows = {what: found for what, (_, found) in told.rows.items()}
    assert rows["toolchain qairt"] == f"{V237} at {sdk} on this machine, for HTP v68, v73"
    assert rows["toolchain onboard"] == f"{V237}, QNN {V237}"
    assert "1 pin, store: none" in rows["toolchain fetch"]
    assert rows["toolchain"].startswith("qairt")
    assert "bench, sim" in rows["boards file"]
    assert rows["board selected"] == "bench (QCS6490 / HTP v68)"
    assert "QC_QNN_SDK_ROOT" in rows[".qualcomm-env"]


# --- what was set up and does not work --------------------------------------------------------


def test_a_directory_that_is_no_sdk(machine):
    told = machine.doctor(QNN_SDK_ROOT=str(machine.root / "home"))
    state, found = told.rows["toolchain qairt"]
    assert (told.status, state) == (75, "MISSING")
    assert "is not a QAIRT SDK" in found
    assert "environment variable QNN_SDK_ROOT" in found
    assert told.rows["toolchain"][0] == "ok"  # ort, as auto takes it
    assert any("QC_QNN_SDK_ROOT" in step for step in told.to_do())
    assert told.fits_a_screen()


def test_an_sdk_that_cannot_build_for_the_board(machine):
    sdk = sdk_in(machine, archs=["v73"])
    told = machine.doctor(QNN_SDK_ROOT=str(sdk))
    state, found = told.rows["toolchain qairt"]
    assert (told.status, state) == (75, "MISSING")
    assert "no lib/hexagon-v68" in found
    phone = "boards: {phone: {soc: sm8550, htp_arch: v73, transport: local}}\n"
    (machine.project / "boards.yaml").write_text(phone)
    assert machine.doctor(QNN_SDK_ROOT=str(sdk)).status == 0


def test_an_sdk_without_the_shim(machine):
    sdk = sdk_in(machine, without=["libQnnModelDlc.so"])
    state, found = machine.doctor(QNN_SDK_ROOT=str(sdk)).rows["toolchain qairt"]
    assert state == "MISSING"
    assert "libQnnModelDlc.so" in found


def test_a_build_host_that_cannot_be_reached(machine):
    told = machine.doctor("--qnnctx-build-host", "nobody@127.0.0.1")
    state, found = told.rows["toolchain qairt"]
    assert (told.status, state) == (75, "MISSING")
    assert "build host nobody@127.0.0.1" in found
    assert told.fits_a_screen()


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("qnnctx.lock", "no: [manifest", "toolchain fetch"),
        ("boards.yaml", "boards: [", "boards file"),
        (".qualcomm-env", "QC_QAIRT_VERSION=new\nQC_SETUP_VERSION=1\n", "toolchain onboard"),
        (".qualcomm-env", "QC_BOARD_PASSWORD=x\nQC_SETUP_VERSION=1\n", ".qualcomm-env"),
    ],
)
def test_a_broken_file_is_wrong_and_told_once(machine, name, content, part):
    (machine.project / name).write_text(content)
    told = machine.doctor()
    assert told.status == 2
    assert [what for what, (state, _) in told.rows.items() if state == "WRONG"] == [part]
    assert len(told.to_do()) == 1
    assert told.fits_a_screen()


def test_a_toolchain_that_was_asked_for_must_be_there(machine):
    told = machine.doctor("--qnnctx-toolchain", "qairt")
    assert told.status == 75
    assert told.rows["toolchain qairt"][0] == "MISSING"
    assert told.rows["toolchain"] == ("waits", "for toolchain qairt")
    told = machine.doctor("--qnnctx-toolchain", "onboard")
    assert told.status == 2
    assert told.rows["toolchain onboard"][0] == "WRONG"
    assert "QC_QAIRT_VERSION" in told.rows["toolchain onboard"][1]
    told = machine.doctor("--qnnctx-toolchain", "qiart")
    assert (told.status, told.rows["toolchain"][0]) == (2, "WRONG")


def test_a_board_that_is_not_there(machine):
    told = machine.doctor("--board", "rb3-99")
    assert (told.status, told.rows["board selected"][0]) == (2, "WRONG")


def test_who_has_a_board_can_do_without_the_emulator(tmp_path, bare_python):
    machine = make_machine(tmp_path, bare_python)
    (machine.project / "boards.yaml").write_text(BOARDS)
    told = machine.doctor(QNN_SDK_ROOT=str(sdk_in(machine)))
    assert told.rows["board sim"][0] == "-"
    assert machine.doctor("--board", "sim").rows["board sim"][0] == "MISSING"


def test_a_configuration_in_the_home_directory_counts_and_who_can_read_it_is_said(machine):
    sdk = sdk_in(machine)
    path = machine.configure(f"QC_QNN_SDK_ROOT={sdk}\nQC_TOPOLGY=A\nQC_SETUP_VERSION=1\n", "home")
    path.chmod(0o644)
    told = machine.doctor()
    assert told.status == 0, told.text
    assert told.rows[".qualcomm-env"][1].startswith(str(path))
    assert "not known: QC_TOPOLGY" in told.rows[".qualcomm-env"][1]
    assert "chmod 600" in told.text
