"""Every gate on the real compiler and emulator: it passes, it fails for a true reason, and it does
not pass where its value cannot be had.
"""

from __future__ import annotations

import json

import nets
import numpy as np
import pytest
from projects import ENCODED, FLOAT, Project

V73 = {"soc": "SM8550", "htp_arch": "v73", "soc_model": 43, "vtcm_mb": 8, "has_float": True}
V73_BOARD = "boards:\n  phone: {soc: sm8550, htp_arch: v73, transport: local, shared: true}\n"
ALTERED = ("--qnnctx-toolchain", "altered")


@pytest.fixture
def phone(project: Project) -> Project:
    """A project with a board ``phone``: the emulator for a part that has floating point."""
    (project.path / "boards.yaml").write_text(V73_BOARD)
    return project


def test_a_good_model_passes_every_gate(classifier):
    ran = classifier.judge(
        ENCODED
        + "no_fp16\nspill_zero\nnpu_only\nencodings_applied\nmax_binary_mb(1)\nmax_vtcm_mb(2)\n"
        "max_load_ms(60000)\nmax_latency_ms(60000)\n"
        'task_metric("top1", min=0.95, max_drop=0.01, per_class_max_drop=0.01)'
    )
    assert ran.result.ret == 0, ran.text
    assert set(ran.verdicts().values()) == {"pass"}
    assert len(ran.verdicts()) == 14
    emulated = {gate["gate"] for gate in ran.test()["gates"] if gate["emulated"]}
    assert {"max_load_ms", "max_latency_ms"} <= emulated


# no_fp16


def test_no_fp16_fails_on_a_float_convolution_and_names_the_nodes(project):
    project.net("net", nets.classifier(), encoded=False)
    ran = project.judge(FLOAT + "no_fp16")
    gate = ran.gate("no_fp16")
    assert (gate["verdict"], gate["measured"], gate["limit"]) == ("fail", 4, 0)
    assert "conv" in gate["evidence"]
    assert ran.result.ret == 1


def test_no_fp16_fails_where_the_part_would_run_it_in_float(phone):
    phone.net("net", nets.classifier(), encoded=False)
    ran = phone.judge(FLOAT + "no_fp16", board="phone")
    gate = ran.gate("no_fp16")
    assert gate["verdict"] == "fail"
    assert any("conv" in name for name in gate["details"]["float_ops"])


def test_no_fp16_cannot_be_measured_where_the_toolchain_cannot_tell(classifier):
    classifier.altered(product={"float_ops": None})
    assert classifier.judge(ENCODED + "no_fp16", arguments=ALTERED).verdicts()["no_fp16"] == (
        "inconclusive"
    )


# spill_zero, max_vtcm_mb


@pytest.fixture
def wide(project: Project) -> Project:
    """A project whose model ``net`` does not fit into 2 MB of VTCM."""
    picture = np.random.default_rng(3).uniform(0, 1, (1, 3, 160, 160)).astype(np.float32)
    project.net("net", nets.wide(), samples=[picture])
    return project


def test_spill_zero_fails_on_a_graph_that_does_not_fit(wide):
    ran = wide.judge(ENCODED + "spill_zero", call="pass")
    gate = ran.gate("spill_zero")
    assert gate["verdict"] == "fail"
    assert gate["measured"] > 1_000_000
    assert gate["unit"] == "bytes"


def test_spill_zero_fails_where_no_spill_was_bought_with_vtcm_that_the_part_lacks(wide):
    wide.altered(target={"vtcm_mb": 8})
    ran = wide.judge(ENCODED + "spill_zero\nmax_vtcm_mb(2)", call="pass", arguments=ALTERED)
    spill = ran.gate("spill_zero")
    assert (spill["verdict"], spill["measured"]) == ("fail", 0)
    assert "8 MiB" in spill["evidence"]
    assert (ran.gate("max_vtcm_mb")["verdict"], ran.gate("max_vtcm_mb")["measured"]) == ("fail", 8)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """No libQnnSystem is to be used."""
    monkeypatch.setenv("QNNCTX_QNN_SYSTEM_LIB", "none")


@pytest.mark.usefixtures("no_library")
def test_spill_zero_cannot_be_measured_without_the_system_library(classifier):
    ran = classifier.judge(ENCODED + "spill_zero", call="pass")
    gate = ran.gate("spill_zero")
    assert (gate["verdict"], gate["measured"]) == ("inconclusive", None)
    assert "libQnnSystem" in gate["evidence"]


def test_max_vtcm_cannot_be_measured_where_the_binary_does_not_say(classifier, no_library):
    classifier.altered(content=((b"vtcm_size=", b"vtcm_sizf="),))
    ran = classifier.judge(ENCODED + "max_vtcm_mb(2)", call="pass", arguments=ALTERED)
    assert ran.verdicts()["max_vtcm_mb"] == "inconclusive"


# max_binary_mb


def test_max_binary_mb(classifier):
    ran = classifier.judge(ENCODED + "max_binary_mb(0.001)", call="pass")
    assert ran.verdicts()["max_binary_mb"] == "fail"


def test_max_binary_mb_cannot_be_measured_where_nothing_was_built(project):
    project.net("net", nets.classifier(), encoded=False)
    ran = project.judge(FLOAT + "max_binary_mb(100)", call="pass")
    assert ran.verdicts()["max_binary_mb"] == "inconclusive"


# htp_arch, soc, runtime: always on


def test_a_binary_of_another_architecture_is_refused_before_it_runs(classifier):
    classifier.altered(target=V73)
    ran = classifier.judge(ENCODED + 'task_metric("top1", min=0.1)', arguments=ALTERED)
    assert ran.gate("htp_arch")["verdict"] == "fail"
    assert (ran.gate("htp_arch")["measured"], ran.gate("htp_arch")["limit"]) == ("v73", "v68")
    assert ran.verdicts()["task_metric(top1)"] == "inconclusive"


def test_the_architecture_cannot_be_read(classifier, no_library):
    classifier.altered(content=((b";arch=68", b";arcx=68"),))
    ran = classifier.judge(ENCODED, arguments=ALTERED)
    assert ran.verdicts()["htp_arch"] == "inconclusive"
    assert ran.result.ret == 1


def test_a_binary_of_another_soc(classifier):
    classifier.altered(target={"soc_model": 35})
    ran = classifier.judge(ENCODED, arguments=ALTERED)
    assert ran.verdicts()["htp_arch"] == "pass"
    assert ran.gate("soc")["verdict"] == "fail"


def test_the_soc_cannot_be_read(classifier):
    classifier.altered(content=((b"soc_type=", b"soc_typf="),))
    assert classifier.judge(ENCODED, arguments=ALTERED).verdicts()["soc"] == "inconclusive"


def test_a_binary_that_is_newer_than_the_runtime(classifier):
    classifier.altered(content=((b"v2.51.0.", b"v2.99.0."),))
    ran = classifier.judge(ENCODED, arguments=ALTERED)
    assert ran.gate("runtime")["verdict"] == "fail"
    assert "2.99" in ran.gate("runtime")["evidence"]


def test_a_binary_whose_version_cannot_be_read(classifier):
    classifier.altered(content=((b"v2.51.0.", b"vx.yz.0."),))
    ran = classifier.judge(ENCODED, arguments=ALTERED)
    assert ran.verdicts()["runtime"] == "inconclusive"


# options_applied: the binary against what was asked of the compiler

#: As if graph_names did not name the graph: what the compiler does when nobody tells it.
UNBOUND = {"vtcm_mb": "4", "htp_graph_finalization_optimization_mode": "0"}


def test_the_compiler_did_what_it_was_asked(classifier):
    gate = classifier.judge(ENCODED).gate("options_applied")
    assert gate["verdict"] == "pass"
    for told in ("htp_arch v68", "soc_model 93", "optimization_level 3", "vtcm_mb 2"):
        assert told in gate["evidence"]


def test_options_that_did_not_bind_fail_and_the_other_gates_are_measured(classifier):
    classifier.altered(options=UNBOUND)
    ran = classifier.judge(ENCODED + 'task_metric("top1", min=0.1)', arguments=ALTERED)
    gate = ran.gate("options_applied")
    assert gate["verdict"] == "fail"
    for told in ("asked 3, found 0", "asked 2, found 4", "graph_names", "QNNExecutionProvider"):
        assert told in gate["evidence"]
    assert ran.verdicts()["task_metric(top1)"] == "pass"
    assert ran.result.ret == 1


def test_an_option_that_was_ignored_is_named(classifier):
    classifier.altered(options={"htp_graph_finalization_optimization_mode": "1"})
    gate = classifier.judge(ENCODED, arguments=ALTERED).gate("options_applied")
    assert gate["verdict"] == "fail"
    assert gate["measured"] == 1
    assert "asked 3, found 1; the compiler ignored optimization_level" in gate["evidence"]


def test_hvx_threads_left_to_the_compiler_are_none_that_were_asked_for(classifier):
    classifier.altered(product={"asked": {"hvx_threads": 4}})
    gate = classifier.judge(ENCODED, arguments=ALTERED).gate("options_applied")
    assert gate["verdict"] == "fail"
    assert "asked 4, found 0" in gate["evidence"]


def test_a_binary_from_elsewhere_that_is_at_the_defaults(classifier):
    classifier.altered(product={"asked": {}}, options=UNBOUND)
    gate = classifier.judge(ENCODED, arguments=ALTERED).gate("options_applied")
    assert gate["verdict"] == "fail"
    assert "did not bind" in gate["evidence"]


def test_a_binary_from_elsewhere_that_was_told_its_options(classifier):
    classifier.altered(product={"asked": {}})
    gate = classifier.judge(ENCODED, arguments=ALTERED).gate("options_applied")
    assert gate["verdict"] == "pass"
    assert "not recorded" in gate["evidence"]


@pytest.mark.usefixtures("no_library")
def test_options_that_cannot_be_read_back_are_no_pass(classifier):
    gate = classifier.judge(ENCODED, call="pass").gate("options_applied")
    assert (gate["verdict"], gate["measured"]) == ("inconclusive", None)
    assert "optimization_level" in gate["evidence"]


# encodings_applied


def test_encodings_of_renamed_tensors_fail_and_are_named(classifier):
    path = classifier.path / "net.encodings"
    path.write_text(path.read_text().replace('"name": "p"', '"name": "pooled"'))
    ran = classifier.judge(ENCODED + "encodings_applied")
    gate = ran.gate("encodings_applied")
    assert gate["verdict"] == "fail"
    assert "pooled" in gate["evidence"]
    assert "pooled" in ran.test()["problem"]["message"]


def test_encodings_that_were_compiled_differently_fail(classifier):
    from pytest_qnnctx.model import EncodingsUse

    use = EncodingsUse("1.0.0", 6, applied=5, differing=("y: scale 1 asked for, 2 compiled",))
    classifier.pytester.makeconftest("")
    classifier.altered(product={"encodings": use})
    text = (classifier.path / "conftest.py").read_text()
    imported = "from pytest_qnnctx.model import EncodingsUse\n"
    (classifier.path / "conftest.py").write_text(imported + text)
    ran = classifier.judge(ENCODED + "encodings_applied", arguments=ALTERED)
    assert ran.gate("encodings_applied")["verdict"] == "fail"
    assert "y: scale 1" in json.dumps(ran.gate("encodings_applied"))


def test_encodings_applied_cannot_be_measured_without_encodings(phone):
    phone.net("net", nets.classifier(), encoded=False)
    ran = phone.judge(FLOAT + "encodings_applied", board="phone")
    assert ran.verdicts()["encodings_applied"] == "inconclusive"


# npu_only


def test_npu_only_fails_on_an_op_that_the_htp_does_not_take(project):
    project.net("net", nets.unsupported())
    ran = project.judge(ENCODED + "npu_only")
    assert ran.gate("npu_only")["verdict"] == "fail"
    assert "determinant" in ran.gate("npu_only")["evidence"]


def test_npu_only_cannot_be_measured_where_the_toolchain_cannot_tell(classifier):
    classifier.altered(product={"host_ops": None})
    ran = classifier.judge(ENCODED + "npu_only", arguments=ALTERED)
    assert ran.verdicts()["npu_only"] == "inconclusive"


# max_load_ms, max_latency_ms


@pytest.mark.parametrize("gate", ["max_load_ms", "max_latency_ms"])
def test_a_time_over_its_limit_fails_with_all_samples(classifier, gate):
    found = classifier.judge(ENCODED + f"{gate}(0.0001)").gate(gate)
    assert found["verdict"] == "fail"
    assert found["measured"] > 0.0001
    assert len(found["details"]["samples_ms"]) >= 11
    assert found["emulated"]


@pytest.mark.parametrize("gate", ["max_load_ms", "max_latency_ms"])
def test_an_emulated_time_is_no_measurement_where_hardware_is_required(classifier, gate):
    ran = classifier.judge(ENCODED + f"{gate}(60000)", arguments=("--qnnctx-require-hardware",))
    found = ran.gate(gate)
    assert found["verdict"] == "inconclusive"
    assert ran.result.ret == 1


# task_metric


def test_task_metric_fails_where_two_classes_are_swapped_and_says_where(project):
    project.net("net", nets.classifier(swap=True))
    project.net("fp32", nets.classifier(), encoded=False)
    model = 'qnn_model("net.onnx", encodings="net.encodings", reference="fp32.onnx")\n'
    limits = "max_drop=0.01, per_class_max_drop=0.05"
    gate = project.judge(model + f'task_metric("top1", {limits})').gate("task_metric(top1)")
    assert gate["verdict"] == "fail"
    assert gate["measured"] == pytest.approx(1 / 3)
    assert gate["details"]["class_drops"] == {"0": 1.0, "1": 1.0, "2": 0.0}
    assert "class" in gate["evidence"]


def test_task_metric_tells_the_loss_of_quantizing_from_that_of_the_backend(classifier):
    path = classifier.path / "net.encodings"
    coarse = json.loads(path.read_text())
    for record in coarse["activation_encodings"]:
        if record["name"] == "r":
            record["scale"] = [record["scale"][0] * 1000]  # all is rounded to zero
    path.write_text(json.dumps(coarse))
    gate = classifier.judge(ENCODED + 'task_metric("top1", min=0.9)').gate("task_metric(top1)")
    assert gate["verdict"] == "fail"
    assert "lost in quantizing" in gate["evidence"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("pass", "did not call acceptance.evaluate"),
        ("raise_in_metric", "ZeroDivisionError"),
        ("nan", "nan"),
    ],
)
def test_task_metric_does_not_pass_unmeasured(classifier, call, why):
    metric = {"raise_in_metric": "lambda o, t: 1 / 0", "nan": 'lambda o, t: float("nan")'}
    body = "pass" if call == "pass" else "acceptance.evaluate(dataset())"
    ran = classifier.judge(
        ENCODED + f"task_metric({metric.get(call, repr('top1'))}, min=0.1)", call=body
    )
    (gate,) = [g for g in ran.test()["gates"] if g["gate"].startswith("task_metric")]
    assert gate["verdict"] != "pass"
    assert why.lower() in gate["evidence"].lower()
    assert ran.result.ret == 1


def test_max_drop_cannot_be_measured_without_the_fp32_model(classifier):
    own = f"--qnnctx-cache-dir={classifier.path / 'own'}"
    classifier.judge(ENCODED, call="pass", arguments=(own,))
    (quantized,) = classifier.path.glob("own/artifacts/*/quantized.onnx")
    (classifier.path / "qdq.onnx").write_bytes(quantized.read_bytes())
    ran = classifier.judge('qnn_model("qdq.onnx")\ntask_metric("top1", min=0.9, max_drop=1)')
    gate = ran.gate("task_metric(top1)")
    assert (gate["verdict"], gate["measured"]) == ("inconclusive", 1.0)
    assert "reference=" in gate["evidence"]


# outputs_sane: always on where there are outputs


def test_outputs_scaled_by_1000_fail_where_every_class_is_still_right(project):
    project.net("net", nets.classifier(gain=1000))
    project.net("fp32", nets.classifier(), encoded=False)
    model = 'qnn_model("net.onnx", encodings="net.encodings", reference="fp32.onnx")\n'
    ran = project.judge(model + 'task_metric("top1", min=0.95, max_drop=0.01)')
    assert ran.verdicts()["task_metric(top1)"] == "pass"
    gate = ran.gate("outputs_sane")
    assert gate["verdict"] == "fail"
    assert "reaches 708, FP32 only 0.708" in gate["evidence"]


ALWAYS_RIGHT = "task_metric(lambda outputs, targets: 1.0, min=0.5)"


def test_outputs_that_overflow_fp16_fail_whatever_the_metric_says(phone):
    phone.net("net", nets.overflow(), encoded=False)
    ran = phone.judge(FLOAT + ALWAYS_RIGHT, board="phone")
    gate = ran.gate("outputs_sane")
    assert gate["verdict"] == "fail"
    assert gate["measured"] < 0.001
    assert ran.result.ret == 1


def test_nan_does_not_pass_where_the_htp_makes_a_number_of_it(phone):
    phone.net("net", nets.nan_weight(), encoded=False)
    ran = phone.judge(FLOAT + ALWAYS_RIGHT, board="phone")
    gate = ran.gate("outputs_sane")
    assert (gate["verdict"], gate["measured"]) == ("inconclusive", None)
    assert "the FP32 reference itself has NaN in y" in gate["evidence"]
    assert ran.result.ret == 1


NAN_RUNNER = """
from dataclasses import replace
from pytest_qnnctx.run.netrun_runner import NetrunRunner

class Broken(NetrunRunner):
    \"\"\"The real runner on the real engine; one value is lost on the way back.\"\"\"

    def execute(self, *args, **kwargs):
        ran = super().execute(*args, **kwargs)
        for sample in ran.outputs[-1:]:
            sample["y"].flat[0] = float("nan")
        return ran

def pytest_qnnctx_runners():
    return [Broken()]
"""


def test_nan_outputs_fail(classifier):
    classifier.pytester.makeconftest(NAN_RUNNER)
    own = f"--qnnctx-cache-dir={classifier.path / 'own'}"
    ran = classifier.judge(ENCODED + ALWAYS_RIGHT, arguments=(own,))
    gate = ran.gate("outputs_sane")
    assert gate["verdict"] == "fail"
    assert "NaN or infinity in y (sample 23)" in gate["evidence"]


def test_a_truncated_binary_passes_nothing(classifier):
    classifier.altered()
    path = classifier.path / "conftest.py"
    text = path.read_text().replace("write_bytes(content)", "write_bytes(content[:-4096])")
    path.write_text(text)
    ran = classifier.judge(ENCODED + 'task_metric("top1", min=0.1)', arguments=ALTERED)
    assert ran.result.ret == 1
    assert "pass" not in {v for name, v in ran.verdicts().items() if name != "soc"}
    assert "truncated" in ran.test()["problem"]["message"]
