"""Each row of the table of known troubles: made to happen, and named with its cause and a remedy.

The troubles are real ones: tools that abort, print nothing or are not found, a server that dies in
the middle of a copy, an op of the HTP that computes something else than the CPU.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nets
import onnx
import pytest
from onnx import helper
from standin_bench import CONVERTER, GENERATOR, Bench, make_bench
from standin_sdk import RUNS_FILE, make_sdk, runs, set_quirks

from pytest_qnnctx.boards.staging import StagingArea
from pytest_qnnctx.build.logs.diagnosis import diagnose, stage_failure
from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.cli_common import open_workbench
from pytest_qnnctx.config import Settings
from pytest_qnnctx.errors import BuildFailed, Finding, InfrastructureError, ProductFailure
from pytest_qnnctx.hosts.ssh import open_ssh
from pytest_qnnctx.judge.gate import Condition
from pytest_qnnctx.judge.judging import judge_all
from pytest_qnnctx.judge.measurements import Measurements
from pytest_qnnctx.judge.verdict import Outcome, Verdict
from pytest_qnnctx.model import Artifact, Model, Target
from pytest_qnnctx.workbench import Workbench

V68 = Target("QCS6490", "v68", 93, 2, has_float=False)
V73 = Target("SM8550", "v73", 43, 8, has_float=True)


@pytest.fixture(scope="module")
def one_sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sdk(tmp_path_factory.mktemp("qairt") / "2.37.1.250807093845")


@pytest.fixture
def sdk(one_sdk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The SDK that is configured, without a quirk."""
    for name in ("QC_QNN_SDK_ROOT", "QC_BUILD_HOST", "QC_QAIRT_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("QNN_SDK_ROOT", str(one_sdk))
    yield one_sdk
    set_quirks(one_sdk)
    (one_sdk / RUNS_FILE).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """An SDK whose tools are called as a person calls them in a shell; a quantized DLC is made."""
    bench = make_bench(tmp_path_factory.mktemp("by_hand"))
    assert bench.convert("--quantization_overrides", "net.encodings").returncode == 0
    assert bench.quantize().returncode == 0
    return bench


def workbench(root: Path, toolchain: str = "qairt", **more: Any) -> Workbench:
    origins = {"board": "--board"}
    settings = Settings(root, "sim", None, toolchain, root / "cache", origins=origins, **more)
    return open_workbench(None, settings)  # type: ignore[arg-type]


def classifier(folder: Path) -> Model:
    nets.write(folder, "net", nets.classifier(), [image for image, _ in nets.images()])
    return Model(folder / "net.onnx", encodings=folder / "net.encodings")


def judged(bench: Workbench, gate: str, artifact: Artifact, target: Target = V68) -> Verdict:
    known = Measurements(target, artifact=artifact, binary=bench.read(artifact))
    (verdict,) = judge_all([Condition(bench.registry.gates[gate], {})], known)
    return verdict


def explained(done: subprocess.CompletedProcess[str], *command: str) -> tuple[Finding, ...]:
    """What is said of a tool that was run by hand and left nothing where it should."""
    log = done.stdout + done.stderr
    run = StageRun(command[0], command, done.returncode, log, 1.0, produced=False)
    findings = diagnose(run, V68)
    assert findings[0].message in str(stage_failure(run, findings, subject="net", target=V68))
    return findings


def kinds(thing: Any) -> set[str]:
    return {finding.kind for finding in thing.findings}


# --- it fails to load on the board ------------------------------------------------------------


def test_a_binary_of_another_architecture_is_named_before_it_is_staged(sdk, tmp_path):
    set_quirks(sdk, wrong_arch="v73")
    bench = workbench(tmp_path)
    artifact = bench.artifact(classifier(tmp_path), V68)
    with bench.lease("a test") as board, pytest.raises(ProductFailure) as caught:
        board.run(artifact, nets.images(1)[0][0])
    assert "net_w8a8_v68.bin was not put on board sim" in str(caught.value)
    assert "htp_arch: binary is for v73, target is v68" in str(caught.value)
    assert "build it for this board's target" in caught.value.next_step


def test_an_sdk_without_the_boards_architecture_builds_nothing(sdk, tmp_path, monkeypatch):
    poor = make_sdk(tmp_path / "2.37.1.250807093845", archs=["v73"])
    monkeypatch.setenv("QNN_SDK_ROOT", str(poor))
    with pytest.raises(InfrastructureError, match=r"no lib/hexagon-v68.*it has: v73") as caught:
        workbench(tmp_path).artifact(classifier(tmp_path), V68)
    assert kinds(caught.value) == {"hexagon_missing"}
    assert runs(poor) == []


# --- encodings seem to be ignored -------------------------------------------------------------


def test_encodings_that_drifted_from_the_onnx_are_named(sdk, tmp_path):
    model = classifier(tmp_path)
    assert model.encodings is not None
    text = model.encodings.read_text().replace('"name": "p"', '"name": "pooled"')
    model.encodings.write_text(text)
    with pytest.raises(ProductFailure) as caught:
        workbench(tmp_path).artifact(model, V68)
    named = {finding.kind: finding for finding in caught.value.findings}
    assert named["encoding_unmatched"].subject == "pooled"
    assert "pooled" in str(caught.value)
    assert "export" in caught.value.next_step
    assert runs(sdk) == []


def test_encodings_that_the_sdk_replaced_without_a_word_fail_their_gate(sdk, tmp_path):
    set_quirks(sdk, recompute_encodings=["r"])
    bench = workbench(tmp_path)
    verdict = judged(bench, "encodings_applied", bench.artifact(classifier(tmp_path), V68))
    assert verdict.outcome is Outcome.FAIL
    assert "r: " in verdict.evidence


# --- much slower than expected ----------------------------------------------------------------


def test_float_fallbacks_are_listed_with_their_ops(sdk, tmp_path):
    set_quirks(sdk, drop_encodings=["r"], fallback_lines=True)
    bench = workbench(tmp_path, float_fallback=True)
    artifact = bench.artifact(classifier(tmp_path), V73)
    assert artifact.provenance is not None
    findings = artifact.provenance.findings
    assert "float_fallback_allowed" in kinds(artifact.provenance)
    fallen = {f.subject: f for f in findings if f.kind == "float_fallback"}
    assert {"conv", "relu"} <= set(fallen)
    assert "'conv' falls back to floating point" in fallen["conv"].message
    assert "quantize it" in fallen["conv"].next_step
    verdict = judged(bench, "no_fp16", artifact, V73)
    assert verdict.outcome is Outcome.FAIL
    assert "conv" in verdict.evidence


# --- libQnnModelDlc.so is not found -----------------------------------------------------------


def test_an_sdk_without_the_shim_is_named(sdk, tmp_path, monkeypatch):
    poor = make_sdk(tmp_path / "2.37.1.250807093845", without=["libQnnModelDlc.so"])
    monkeypatch.setenv("QNN_SDK_ROOT", str(poor))
    with pytest.raises(InfrastructureError, match=r"has no .*libQnnModelDlc\.so") as caught:
        workbench(tmp_path).artifact(classifier(tmp_path), V68)
    assert kinds(caught.value) == {"shim_missing"}
    assert "whole SDK" in caught.value.next_step


def test_the_shim_is_not_found_where_the_environment_was_not_sourced(by_hand):
    command = (
        f"{by_hand.sdk}/bin/x86_64-linux-clang/{GENERATOR}",
        *("--model", "libQnnModelDlc.so", "--dlc_path", "net_q.dlc", "--binary_file", "net"),
        *("--backend", f"{by_hand.sdk}/lib/x86_64-linux-clang/libQnnHtp.so"),
    )
    (finding,) = explained(by_hand.shell(" ".join(f"'{word}'" for word in command)), GENERATOR)
    assert (finding.kind, finding.subject) == ("shim_missing", "libQnnModelDlc.so")
    assert "envsetup.sh" in finding.next_step


# --- .bin.bin ---------------------------------------------------------------------------------


def test_a_doubled_suffix_is_named_with_what_to_write_instead(by_hand):
    done = by_hand.generate(name="net.bin")
    assert done.returncode == 0
    assert (by_hand.work / "out" / "net.bin.bin").stat().st_size > 0
    (finding,) = explained(done, GENERATOR, "--binary_file", "net.bin", "--output_dir", "out")
    assert finding.kind == "binary_name_doubled"
    assert "the generator appends .bin itself" in finding.message
    assert "base name" in finding.next_step


# --- right on the CPU, wrong on the HTP -------------------------------------------------------

#: Neighbours on a fine grid. The HTP's square root of 16-bit values is an approximation that is
#: not monotone (measured with QNN 2.51): now and then the larger of two has the smaller root.
ROOTS = """
def neighbours():
    grid = np.linspace(0, 1, 1024, dtype=np.float32)[256:].reshape(-1, 3)
    return [({"x": three[None]}, 2) for three in grid]

@pytest.mark.qnn_model("net.onnx", encodings="net.encodings")
@pytest.mark.task_metric("top1", min=0.99)
def test_net(acceptance):
    acceptance.evaluate(neighbours())
"""


def test_a_difference_between_the_cpu_and_the_htp_is_told_from_one_of_quantizing(project):
    shape = [1, 3]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    node = helper.make_node("Sqrt", ["x"], ["y"], name="root")
    graph = helper.make_graph([node], "net", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=opset, ir_version=8), project.path / "net.onnx"
    )
    records = [{**nets.record(name, 1.0), "bw": 16, "scale": [1 / 65535]} for name in "xy"]
    encodings = {"version": "1.0.0", "activation_encodings": records, "param_encodings": []}
    (project.path / "net.encodings").write_text(json.dumps(encodings))
    project.tests(ROOTS)
    gate = project.run("--qnnctx-toolchain=ort").gate("task_metric(top1)")
    assert gate["verdict"] == "fail"
    assert gate["measured"] < 0.99
    assert gate["details"]["quantized_score"] == 1.0  # the same graph, on the CPU
    assert "lost in the context binary" in gate["evidence"]
    assert "bisect the model by sub-graphs" in gate["evidence"]


# --- the board disappears during the copy -----------------------------------------------------


@pytest.fixture
def dying(sshd: Any, tmp_path: Path) -> Iterator[Any]:
    """An SSH server of this test alone."""
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = type(sshd)(folder)
    server.start()
    yield server
    server.stop()


def test_a_board_that_vanishes_while_a_binary_is_staged(dying, tmp_path):
    host = open_ssh("buildbox", name="board rb3-01", config_file=dying.config_file)
    binary, root = tmp_path / "net_v68.bin", tmp_path / "staging"
    with binary.open("wb") as file:
        file.truncate(4 << 30)  # sparse: it takes no room here, and long on its way
    area = StagingArea(host, "rb3-01", str(root), str(root / "work" / "mine"))
    area.prepare()

    def kill_it_half_way() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if any(p.stat().st_size > 1 << 20 for p in (root / "work").rglob(".copying-*")):
                break
            time.sleep(0.01)
        dying.kill()

    thread = threading.Thread(target=kill_it_half_way)
    thread.start()
    with pytest.raises(InfrastructureError, match="it was reachable and is gone") as caught:
        area.stage(binary, "0" * 64, timeout_s=120)
    thread.join()
    host.close()
    assert "board rb3-01" in caught.value.what
    assert "net_v68.bin" in caught.value.what
    for word in ("uptime", "burst write", "eMMC", "/tmp"):
        assert word in caught.value.next_step


# --- exit 134 ---------------------------------------------------------------------------------


def test_exit_134_is_told_as_a_float_op_with_the_ops(sdk, tmp_path):
    set_quirks(sdk, drop_encodings=["r"])
    with pytest.raises(BuildFailed) as caught:
        workbench(tmp_path).artifact(classifier(tmp_path), V68)
    assert "qnn-context-binary-generator ended with exit 134 (SIGABRT)" in caught.value.what
    floats = [f for f in caught.value.findings if f.kind == "float_op"]
    assert any("conv" in finding.subject for finding in floats)
    assert all("floating point" in finding.message for finding in floats)
    assert "floating point" in str(caught.value)
    assert caught.value.next_step == "give it an encoding, or calibration= inputs"


# --- exit 0, and nothing was made -------------------------------------------------------------


def test_a_stage_that_ends_well_and_makes_nothing_is_an_error(sdk, tmp_path):
    set_quirks(sdk, exit0_nothing=[CONVERTER])
    with pytest.raises(InfrastructureError) as caught:
        workbench(tmp_path).artifact(classifier(tmp_path), V68)
    assert kinds(caught.value) == {"nothing_produced"}
    assert f"{CONVERTER} ended with exit 0 and produced nothing" in str(caught.value)
    for word in ("envsetup.sh", "bash", "after any eSDK environment file", "LD_LIBRARY_PATH unset"):
        assert word in caught.value.next_step


def test_the_wrong_order_of_environments_makes_nothing(by_hand):
    set_quirks(by_hand.sdk, ["envsetup_appends"])
    product = "drifted.dlc"
    done = by_hand.run(
        *(CONVERTER, "--input_network", "net.onnx", "--output_path", product),
        before="export LD_LIBRARY_PATH=/opt/esdk/lib",
    )
    set_quirks(by_hand.sdk)
    assert done.returncode == 0
    assert not (by_hand.work / product).exists()
    (finding,) = explained(done, CONVERTER, "--output_path", product)
    assert finding.kind == "nothing_produced"
    assert "after any eSDK environment file" in finding.next_step


# --- a tool is not found after sourcing -------------------------------------------------------


def test_a_tool_that_the_environment_hides_is_named_with_the_cause(sdk, tmp_path):
    set_quirks(sdk, ["envsetup_leaves_path"])
    with pytest.raises(InfrastructureError, match="qairt-converter is not found") as caught:
        workbench(tmp_path).artifact(classifier(tmp_path), V68)
    assert kinds(caught.value) == {"tool_missing"}
    assert "sourced with sh, or an eSDK environment sourced after it" in caught.value.what
    assert "bash" in caught.value.next_step
    assert runs(sdk) == []


def test_an_environment_that_was_sourced_with_sh_is_named(by_hand):
    script = f". '{by_hand.sdk}/bin/envsetup.sh'; {CONVERTER} --input_network net.onnx"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=by_hand.work,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    findings = explained(done, CONVERTER, "--input_network", "net.onnx")
    assert [(f.kind, f.subject) for f in findings] == [("tool_missing", CONVERTER)]
    assert "with bash, not with sh" in findings[0].next_step
