"""Finding an SDK and running its tools, with an SDK of a few lines of shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_qnnctx.build.qairt.place import Deadline, LocalPlace
from pytest_qnnctx.build.qairt.script import tool_script
from pytest_qnnctx.build.qairt.sdk import find_sdk
from pytest_qnnctx.build.qairt.shell import SdkShell
from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.hosts.local import LocalHost
from pytest_qnnctx.model import Target

HOST = LocalHost("this machine")
QCS6490 = Target("QCS6490", "v68", 93, 2, has_float=False)
TOOLS = ("qairt-converter", "qairt-quantizer", "qnn-context-binary-generator")
ENVSETUP = """
[ -n "$BASH_VERSION" ] || exit 1
echo "environment set up with $# arguments"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH="$here/bin/x86_64-linux-clang:$PATH"
export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$here/lib/x86_64-linux-clang"
cd /
"""


def write_sdk(root: Path, *, tool: str = 'echo "$0 $*"', archs: tuple[str, ...] = ("v68",)) -> Path:
    tools, libraries = root / "bin/x86_64-linux-clang", root / "lib/x86_64-linux-clang"
    tools.mkdir(parents=True)
    libraries.mkdir(parents=True)
    for name in TOOLS:
        (tools / name).write_text(f"#!/bin/bash\n{tool}\n")
        (tools / name).chmod(0o755)
    for name in ("libQnnHtp.so", "libQnnModelDlc.so", "libQnnHtpNetRunExtensions.so"):
        (libraries / name).write_text("")
    for arch in archs:
        (root / "lib" / f"hexagon-{arch}" / "unsigned").mkdir(parents=True)
    (root / "bin/envsetup.sh").write_text(ENVSETUP)
    (root / "sdk.yaml").write_text("product: QAIRT\nversion: 2.37.1\nbuild_id: 250807093845\n")
    return root


@pytest.fixture
def root(tmp_path) -> Path:
    return write_sdk(tmp_path / "my sdk")


def shell(root: Path, work: Path, seconds: float = 60) -> SdkShell:
    work.mkdir(exist_ok=True)
    deadline = Deadline(seconds, "building net")
    sdk = find_sdk(HOST, str(root), remote=False)
    return SdkShell(sdk, LocalPlace(HOST, work), deadline, {})


# --- finding it -------------------------------------------------------------------------------


def test_an_sdk_is_described(root):
    sdk = find_sdk(HOST, f"{root}/", remote=False)
    assert sdk.root == str(root)
    assert (sdk.version, sdk.version_from) == ("2.37.1.250807093845", "sdk.yaml")
    assert sdk.archs == ("v68",)
    sdk.check_target(QCS6490)


def test_the_version_comes_from_elsewhere_where_sdk_yaml_is_missing(tmp_path):
    root = write_sdk(tmp_path / "2.40.0.251030114326")
    (root / "sdk.yaml").unlink()
    sdk = find_sdk(HOST, str(root), remote=False)
    assert (sdk.version, sdk.version_from) == ("2.40.0.251030114326", "the directory's name")
    plain = write_sdk(tmp_path / "sdk", tool='[ "$1" = --version ] && echo v2.41.0.260101010101')
    (plain / "sdk.yaml").unlink()
    sdk = find_sdk(HOST, str(plain), remote=False)
    assert sdk.version == "2.41.0.260101010101"
    assert sdk.version_from == "qnn-context-binary-generator --version"


def test_a_version_that_nothing_tells_is_not_guessed(tmp_path):
    root = write_sdk(tmp_path / "sdk", tool="exit 0")
    (root / "sdk.yaml").unlink()
    with pytest.raises(InfrastructureError, match=r"neither sdk\.yaml"):
        find_sdk(HOST, str(root), remote=False)


@pytest.mark.parametrize("missing", ["directory", "envsetup"])
def test_a_wrong_directory_is_named_with_what_to_set(root, missing, tmp_path):
    (root / "bin/envsetup.sh").unlink()
    place = tmp_path / "absent" if missing == "directory" else root
    with pytest.raises(InfrastructureError) as caught:
        find_sdk(HOST, str(place), remote=False)
    assert str(place) in caught.value.what
    assert "QC_QNN_SDK_ROOT" in caught.value.next_step


def test_no_sdk_at_all_says_what_to_do(monkeypatch):
    monkeypatch.delenv("QNN_SDK_ROOT", raising=False)
    with pytest.raises(InfrastructureError) as caught:
        find_sdk(HOST, None, remote=False)
    assert "no QAIRT SDK is configured" in caught.value.what
    assert "QC_BUILD_HOST" in caught.value.next_step


def test_an_architecture_that_is_not_there_is_named_with_those_that_are(tmp_path):
    root = write_sdk(tmp_path / "sdk", archs=("v73", "v75"))
    with pytest.raises(InfrastructureError) as caught:
        find_sdk(HOST, str(root), remote=False).check_target(QCS6490)
    assert "lib/hexagon-v68" in caught.value.what
    assert "v73, v75" in caught.value.what
    assert caught.value.findings[0].kind == "hexagon_missing"


def test_a_missing_shim_is_named(root):
    (root / "lib/x86_64-linux-clang/libQnnModelDlc.so").unlink()
    with pytest.raises(InfrastructureError, match=r"libQnnModelDlc\.so") as caught:
        find_sdk(HOST, str(root), remote=False).check_target(QCS6490)
    assert caught.value.findings[0].kind == "shim_missing"


# --- its tools --------------------------------------------------------------------------------


def test_tools_are_found_and_run_in_the_environment_and_the_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/from/an/esdk")
    root = write_sdk(tmp_path / "sdk", tool='pwd; echo "$LD_LIBRARY_PATH"; echo "$@"; exit 3')
    work = tmp_path / "work dir"
    at_work = shell(root, work)
    assert at_work.find_tools() is None
    run = at_work.run(["qairt-converter", "--a", "b c", "$HOME"], ["qairt-converter"])
    assert run.returncode == 3
    lines = run.log.splitlines()
    assert lines[0] == str(work)
    assert "/from/an/esdk" not in lines[1]
    assert lines[2] == "--a b c $HOME"
    assert "environment set up" not in run.log


def test_both_streams_keep_their_order(tmp_path):
    root = write_sdk(tmp_path / "sdk", tool="echo 1; echo 2 >&2; echo 3")
    assert shell(root, tmp_path / "w").run(["qairt-converter"], []).log == "1\n2\n3\n"


def test_a_tool_that_the_environment_hides(root, tmp_path):
    (root / "bin/envsetup.sh").write_text("echo 'set up by sh'\n")
    with pytest.raises(InfrastructureError) as caught:
        shell(root, tmp_path / "w").find_tools()
    assert caught.value.findings[0].kind == "tool_missing"
    assert "envsetup.sh sourced with sh" in caught.value.what
    assert "set up by sh" in caught.value.what


def test_a_tool_that_the_sdk_lacks(root, tmp_path):
    (root / "bin/x86_64-linux-clang/qairt-quantizer").unlink()
    with pytest.raises(InfrastructureError, match=r"qairt-quantizer .* the SDK has no such file"):
        shell(root, tmp_path / "w").find_tools()


def test_an_envsetup_that_ends_the_shell_is_no_success(root, tmp_path):
    (root / "bin/envsetup.sh").write_text("exit 0\n")
    at_work = shell(root, tmp_path / "w")
    run = at_work.run(["qairt-converter"], [])
    assert run.returncode != 0
    assert "envsetup.sh ended the shell" in run.log
    with pytest.raises(InfrastructureError, match=r"envsetup\.sh ended the shell"):
        at_work.find_tools()


def test_help_is_asked_for_once_and_a_tool_that_does_not_run_is_named(tmp_path):
    count = tmp_path / "count"
    root = write_sdk(tmp_path / "sdk", tool=f"echo x >> {count}; echo '--input_network'")
    at_work = shell(root, tmp_path / "w")
    assert at_work.help("qairt-converter").flags == {"--input_network"}
    at_work.help("qairt-converter")
    assert count.read_text() == "x\n"
    broken = write_sdk(tmp_path / "broken", tool="echo \"ImportError: No module named 'qti'\"")
    with pytest.raises(InfrastructureError, match="No module named 'qti'"):
        shell(broken, tmp_path / "w2").help("qairt-converter")


def test_a_tool_that_takes_too_long_is_ended_and_named(tmp_path):
    root = write_sdk(tmp_path / "sdk", tool="sleep 60")
    at_work = shell(root, tmp_path / "w", seconds=1.5)
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match="qairt-converter was stopped"):
        at_work.run(["qairt-converter"], [])
    assert time.monotonic() - started < 20


def test_a_tool_and_its_children_do_not_outlive_a_killed_session(tmp_path):
    pids = tmp_path / "pids"
    root = write_sdk(tmp_path / "sdk", tool=f"sleep 100 & echo $$ $! > {pids}; wait")
    script = tmp_path / "run.sh"
    script.write_text(tool_script(str(root), str(tmp_path), ["qairt-converter"]))
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(script)], env={**os.environ, "PYTHONPATH": _path()}
    )
    deadline = time.monotonic() + 20
    while not (pids.exists() and pids.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.05)
    tool, child = (int(pid) for pid in pids.read_text().split())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(tool)
    assert gone(child)


_PARENT = (
    "import sys; from pytest_qnnctx.hosts.local import LocalHost; "
    "LocalHost().execute(['bash', sys.argv[1]], timeout_s=100)"
)


def _path() -> str:
    import pytest_qnnctx

    return str(Path(pytest_qnnctx.__file__).parent.parent)


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False
