"""Whole sessions: workers, exit status, reports, and what a user's mistakes give."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree

import nets
import pytest
from projects import ENCODED, FLOAT

#: Boards that cannot be opened, and ones that are lost while they run.
DEAD_BOARD = """
from pytest_qnnctx.errors import InfrastructureError

def unreachable(board):
    raise InfrastructureError(f"board {board.name} does not answer", next_step="look at its power")

def pytest_qnnctx_transports():
    return {"dead": unreachable}
"""
DEAD_YAML = "boards:\n  gone: {soc: qcs6490, htp_arch: v68, transport: dead, runner: netrun}\n"

TWO_TESTS = f"""
@pytest.mark.{ENCODED.strip()}
@pytest.mark.task_metric("top1", min=0.9)
@pytest.mark.max_latency_ms(60000)
def test_good(acceptance):
    acceptance.evaluate(dataset())

@pytest.mark.{ENCODED.strip()}
@pytest.mark.max_binary_mb(0.001)
def test_too_big(acceptance):
    acceptance.evaluate(dataset())

@pytest.mark.{ENCODED.strip()}
def test_runs(board, context_binary):
    outputs = board.run(context_binary, nets.images()[0][0])
    assert outputs["y"].shape == (1, 3)
    assert context_binary.path.name == "net_w8a8_v68.bin"

def test_plain():
    pass
"""


def test_workers_give_the_same_verdicts(classifier):
    classifier.tests(TWO_TESTS)
    alone = classifier.run(apart=True)
    spread = classifier.run("-n", "2", apart=True)
    assert alone.result.ret == spread.result.ret == 1

    def seen(ran):
        return {test["nodeid"]: (test["outcome"], test["gates"]) for test in ran.report["tests"]}

    def verdicts(ran):
        return {
            name: (out, [g["verdict"] for g in gates]) for name, (out, gates) in seen(ran).items()
        }

    assert verdicts(alone) == verdicts(spread)
    assert len(seen(alone)) == 3
    alone.result.assert_outcomes(passed=3, failed=1)
    spread.result.assert_outcomes(passed=3, failed=1)


def test_junit_tells_gates_and_families(classifier):
    classifier.tests(TWO_TESTS)
    classifier.run("--junit-xml=junit.xml", "-n", "2", apart=True)
    cases = ElementTree.parse(classifier.path / "junit.xml").iter("testcase")
    properties = {
        case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in cases
    }
    assert properties["test_too_big"]["qnnctx.family"] == "product"
    assert properties["test_too_big"]["qnnctx.gate.max_binary_mb"].startswith("fail: measured 0.05")
    assert properties["test_good"]["qnnctx.board"] == "sim"
    assert "qnnctx.family" not in properties["test_good"]
    assert properties["test_plain"] == {}


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_dead_board_is_an_error_and_not_the_models_failure(classifier, workers):
    (classifier.path / "boards.yaml").write_text(DEAD_YAML)
    classifier.pytester.makeconftest(DEAD_BOARD)
    classifier.tests(TWO_TESTS)
    ran = classifier.run(
        *workers, "-k", "runs or good", "--junit-xml=j.xml", board="gone", apart=True
    )
    ran.result.assert_outcomes(errors=2)
    assert ran.result.ret == 75
    ran.result.stdout.fnmatch_lines(["*= ERRORS =*", "*board gone does not answer*"])
    assert {test["outcome"] for test in ran.report["tests"]} == {"error"}
    assert {test["problem"]["family"] for test in ran.report["tests"]} == {"infrastructure"}
    suite = ElementTree.parse(classifier.path / "j.xml").getroot().find("testsuite")
    assert (suite.get("errors"), suite.get("failures")) == ("2", "0")
    assert "Traceback" not in ran.text


def test_a_failed_model_beside_a_dead_board_is_no_infrastructure_matter(classifier):
    (classifier.path / "boards.yaml").write_text(DEAD_YAML)
    classifier.pytester.makeconftest(DEAD_BOARD)
    classifier.tests(TWO_TESTS + "\ndef test_bad():\n    assert False\n")
    ran = classifier.run("-k", "runs or bad", board="gone")
    assert ran.result.ret == 1
    ran.result.assert_outcomes(errors=1, failed=1)


def test_xfail_hides_a_bad_model_but_no_dead_board(classifier):
    (classifier.path / "boards.yaml").write_text(DEAD_YAML)
    classifier.pytester.makeconftest(DEAD_BOARD)
    mark = f"@pytest.mark.xfail\n@pytest.mark.{ENCODED.strip()}\n"
    classifier.tests(
        f"{mark}@pytest.mark.max_binary_mb(0.001)\ndef test_big(acceptance):\n"
        "    acceptance.evaluate(dataset())\n"
    )
    assert classifier.run().result.ret == 0
    lost = classifier.run(board="gone")
    assert lost.result.ret == 75
    lost.result.assert_outcomes(errors=1)


def test_a_worker_that_dies_leaves_no_green(classifier):
    classifier.tests(
        "import os\n\n@pytest.mark.parametrize('n', range(4))\ndef test_x(n):\n"
        "    if n == 1:\n        os._exit(3)\n"
    )
    ran = classifier.run("-n", "2", "--max-worker-restart=0", apart=True)
    assert ran.result.ret not in (0, 5)


def test_a_lost_test_is_told(classifier):
    classifier.tests("def test_a():\n    pass\n\ndef test_lost():\n    pass\n")
    classifier.pytester.makeconftest(
        "import pytest\n\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_protocol(item):\n    return True if 'lost' in item.name else None\n"
    )
    ran = classifier.run()
    assert ran.result.ret == 76
    ran.result.stdout.fnmatch_lines(["without a result*1 collected test: *test_lost*"])


def test_stopping_early_is_not_losing_tests(classifier):
    classifier.tests("def test_a():\n    assert False\n\ndef test_b():\n    pass\n")
    assert classifier.run("-x").result.ret == 1


def test_a_marker_alone_is_judged(classifier):
    ran = classifier.judge(ENCODED + "max_binary_mb(0.001)", call="pass")
    assert ran.verdicts()["max_binary_mb"] == "fail"
    classifier.tests(
        f"@pytest.mark.{ENCODED}@pytest.mark.max_binary_mb(0.001)\ndef test_net():\n    pass\n"
    )
    assert classifier.run().result.ret == 1


def test_a_swallowed_verdict_stands(classifier):
    call = "pytest.raises(Exception, acceptance.evaluate, dataset())"
    ran = classifier.judge(ENCODED + "max_binary_mb(0.001)", call=call)
    assert ran.result.ret == 1
    assert ran.test()["outcome"] == "failed"


def test_evaluate_twice_is_a_mistake(classifier):
    call = "acceptance.evaluate(dataset()); acceptance.evaluate(dataset())"
    ran = classifier.judge(ENCODED, call=call)
    assert ran.result.ret == 1
    assert "called twice" in ran.text


def test_data_that_does_not_fit_is_named(classifier):
    ran = classifier.judge(ENCODED, call='acceptance.evaluate([({"z": np.zeros(3)}, 0)])')
    assert ran.result.ret == 1
    assert "dataset item 0: the graph's inputs are x [1, 3, 8, 8]" in ran.text
    assert "Traceback" not in ran.text


def test_a_build_failure_in_a_fixture_fails_the_test(project):
    project.net("net", nets.classifier(), encoded=False)
    project.tests(f"@pytest.mark.{FLOAT}def test_net(context_binary):\n    pass\n")
    ran = project.run()
    ran.result.assert_outcomes(failed=1)
    assert ran.result.ret == 1
    assert "computes in floating point" in ran.text
    assert ran.test()["outcome"] == "failed"


def test_without_a_board_nothing_passes_and_plain_tests_still_run(classifier):
    classifier.tests(TWO_TESTS)
    ran = classifier.run(board=None)
    ran.result.assert_outcomes(passed=1, errors=3)
    assert "choose one with --board" in ran.text
    assert ran.result.ret == 1


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("max_load_ms", "max_load_ms"),
        ("max_load_ms('fast')", "max_load_ms"),
        ("max_binary_mb(-1)", "max_binary_mb"),
        ("spill_zero(1)", "spill_zero"),
        ("task_metric('top1')", "task_metric"),
        ("task_metric('top2', min=1)", "top1"),
        ("qnn_model()", "path"),
        ("qnn_model('net.onnx', encoding='x')", "encoding"),
        ("qnn_model('net.onnx', input_shapes=[1])", "input_shapes"),
    ],
)
def test_a_bad_marker_is_told_before_anything_runs(classifier, marker, said):
    classifier.tests(f"@pytest.mark.{marker}\ndef test_net(acceptance):\n    pass\n")
    ran = classifier.run()
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"test_net.py::test_net: marker {marker.partition('(')[0]}" in ran.text
    assert said in ran.text
    assert "Traceback" not in ran.text


@pytest.mark.parametrize(
    ("board", "said"),
    [("qcs6491", "qcs6491"), ("", "a board selector is empty")],
)
def test_a_board_that_is_none(classifier, board, said):
    classifier.tests(TWO_TESTS)
    ran = classifier.run("-k", "runs", board=board)
    assert ran.result.ret != 0
    assert said in ran.text
    assert "Traceback" not in ran.text


def test_missing_files_are_named(classifier):
    ran = classifier.judge('qnn_model("nat.onnx")')
    assert "the model file 'nat.onnx' does not exist" in ran.text
    assert ran.result.ret == 1


def test_a_toolchain_that_is_none_is_told_before_anything_runs(classifier):
    ran = classifier.judge(ENCODED, arguments=("--qnnctx-toolchain=qairtt",))
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "there is no toolchain 'qairtt'" in ran.text


def test_help_markers_and_fixtures_read_well(classifier):
    classifier.tests(TWO_TESTS)
    text = classifier.run("--help").text
    part = text[text.index("Qualcomm HTP context binaries") :]
    assert "--board=SELECTOR" in part
    assert "QNNCTX_CACHE_DIR" in part
    markers = classifier.run("--markers").text
    for name in ("qnn_model", "spill_zero", "max_load_ms", "task_metric", "max_vtcm_mb"):
        assert f"@pytest.mark.{name}" in markers
    assert "@pytest.mark.htp_arch" not in markers
    fixtures = classifier.run("--fixtures").text
    for name in ("qnn_model", "target", "context_binary", "board", "acceptance"):
        assert f"\n{name} --" in fixtures
    assert "no docstring available" not in fixtures
    collected = classifier.run("--collect-only", "-q", "--strict-markers")
    assert collected.result.ret == 0
    assert "test_net.py::test_good" in collected.text
    assert not collected.report


def test_the_plugin_is_silent_where_it_is_not_used(pytester):
    pytester.makepyfile("def test_a():\n    pass\n")
    result = pytester.runpytest_inprocess()
    assert "qnnctx:" not in result.stdout.str()
    assert result.ret == 0


@pytest.mark.parametrize(
    "without", [("-p", "no:xdist"), ("-p", "no:terminal"), ("-p", "no:junitxml")]
)
def test_it_works_without_other_plugins(classifier, without):
    classifier.tests(TWO_TESTS)
    assert (
        classifier.run("-k", "runs", *without, apart=True).report["tests"][0]["outcome"] == "passed"
    )


def test_the_header_names_board_toolchain_and_versions(classifier):
    classifier.tests("def test_a():\n    pass\n")
    ran = classifier.run()
    ran.result.stdout.fnmatch_lines(
        [
            "qnnctx 0.*: board sim (from --board), QCS6490 / HTP v68",
            "qnnctx toolchain: ort *QNN 2.*",
        ]
    )
    assert ran.report["session"]["emulated"] is None


def test_a_metric_and_a_gate_of_a_plugin(classifier):
    classifier.pytester.makeconftest(
        """
        from dataclasses import dataclass
        from pytest_qnnctx.judge.metric import Score
        from pytest_qnnctx.judge.verdict import Outcome, Verdict

        class Brightest:
            name, unit = "brightest", "share"

            def __call__(self, outputs, targets):
                right = sum(int(o["y"].argmax()) == t for o, t in zip(outputs, targets))
                return Score(right / len(targets), len(targets))

        class ShortName:
            name = signature = "short_name"
            help = "the binary's name is short"
            always = False

            def limits(self, args, kwargs):
                return {}

            def needs(self, limits):
                return frozenset()

            def judge(self, limits, measurements):
                length = len(measurements.artifact.path.name)
                return Verdict(self.name, Outcome.FAIL, length, 3, "letters", "it is long")

        def pytest_qnnctx_metrics():
            return [Brightest()]

        def pytest_qnnctx_gates():
            return [ShortName()]
        """
    )
    ran = classifier.judge(
        ENCODED + 'task_metric("brightest", min=0.9)\nshort_name', arguments=("--strict-markers",)
    )
    assert ran.verdicts()["task_metric(brightest)"] == "pass"
    assert ran.gate("short_name")["measured"] == len("net_w8a8_v68.bin")
    assert ran.result.ret == 1


def test_the_second_run_repeats_the_first_from_the_cache(classifier):
    own = f"--qnnctx-cache-dir={classifier.path / 'own'}"
    marks = ENCODED + 'max_load_ms(60000)\ntask_metric("top1", min=0.9, max_drop=0.1)'
    first = classifier.judge(marks, arguments=(own,))
    again = classifier.judge(marks, arguments=(own,))
    assert first.verdicts() == again.verdicts()
    samples = [ran.gate("max_load_ms")["details"]["samples_ms"] for ran in (first, again)]
    assert samples[0] == samples[1]
    assert "recorded 20" in again.gate("max_load_ms")["evidence"]
    assert "recorded" not in first.gate("max_load_ms")["evidence"]
    fresh = classifier.judge(marks, arguments=(own, "--qnnctx-fresh"))
    assert fresh.gate("max_load_ms")["details"] != first.gate("max_load_ms")["details"]
    assert fresh.gate("task_metric(top1)") == first.gate("task_metric(top1)")


def test_the_report_names_what_was_built(classifier):
    ran = classifier.judge(ENCODED)
    artifact = ran.test()["artifact"]
    assert artifact["file"] == "net_w8a8_v68.bin"
    provenance = artifact["provenance"]
    assert provenance["sha256"] == artifact["sha256"]
    assert set(provenance["files"]) == {"onnx", "encodings"}
    assert provenance["toolchain"]["qnn_version"].startswith("2.")
    assert provenance["encodings"]["applied"] == provenance["encodings"]["total"] > 0
    assert json.loads(json.dumps(provenance)) == provenance
    assert sys.executable not in json.dumps(provenance)


@pytest.mark.parametrize("marker", ["no_fp61", "spil_zero", "max_load", "task_metrics('top1')"])
def test_a_misspelt_gate_is_no_pass(classifier, marker):
    ran = classifier.judge(ENCODED + marker)
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"there is no marker {marker.partition('(')[0]}" in ran.text
    assert "did you mean" in ran.text


def test_markers_of_others_are_left_alone(classifier):
    classifier.pytester.makeini("[pytest]\nmarkers =\n    no_fp: ours\n")
    ran = classifier.judge(ENCODED + "slow\nno_fp\nusefixtures()")
    assert ran.result.ret == 0


def test_all_marker_mistakes_are_told_at_once(classifier):
    classifier.tests(
        "@pytest.mark.max_load_ms\ndef test_a(acceptance):\n    pass\n\n"
        "@pytest.mark.spill_zero(1)\ndef test_b(acceptance):\n    pass\n"
    )
    text = classifier.run().text
    assert "test_a" in text
    assert "test_b" in text


@pytest.mark.parametrize("given", ["'net.onnx'", "None", "3"])
def test_a_fixture_that_gives_no_model_is_told(classifier, given):
    classifier.pytester.makeconftest(
        f"import pytest\n\n@pytest.fixture\ndef qnn_model():\n    return {given}\n"
    )
    classifier.tests("def test_a(acceptance):\n    pass\n\ndef test_b(context_binary):\n    pass\n")
    ran = classifier.run()
    ran.result.assert_outcomes(errors=2)
    assert "which is no Model" in ran.text
    assert "INTERNALERROR" not in ran.text


def test_a_fixture_that_makes_the_model_in_code(classifier):
    classifier.pytester.makeconftest(
        "import pytest\nfrom pytest_qnnctx import Model\n\n@pytest.fixture\ndef qnn_model():\n"
        "    return Model('net.onnx', encodings='net.encodings')\n"
    )
    classifier.tests("def test_a(acceptance):\n    acceptance.evaluate(dataset())\n")
    assert classifier.run().result.ret == 0


@pytest.mark.parametrize("hook", ["metrics", "gates", "toolchains", "runners", "transports"])
@pytest.mark.parametrize("given", ["3", "[3]", "'abc'"])
def test_a_hook_that_returns_what_it_must_not(classifier, hook, given):
    classifier.pytester.makeconftest(f"def pytest_qnnctx_{hook}():\n    return {given}\n")
    ran = classifier.judge(ENCODED + 'task_metric("top1", min=0.5)')
    assert ran.result.ret != 0
    assert f"the hook pytest_qnnctx_{hook} returned what it must not" in ran.text
    assert "INTERNALERROR" not in ran.text


@pytest.mark.parametrize("place", ["/proc/none/r.json", "."])
def test_a_report_that_cannot_be_written_is_told_before_anything_runs(classifier, place):
    classifier.tests("def test_a():\n    pass\n")
    result = classifier.pytester.runpytest_inprocess("--board=sim", f"--qnnctx-json={place}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: the JSON report '*' cannot be written: *"])


def test_a_board_without_a_transport_is_told_before_anything_runs(classifier):
    (classifier.path / "boards.yaml").write_text(
        "boards:\n  rb3: {soc: qcs6490, htp_arch: v68, transport: ssh, host: rb3}\n"
    )
    classifier.tests(TWO_TESTS)
    ran = classifier.run(board="qcs6490")
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "board rb3 cannot be opened: there is no transport 'ssh'" in ran.text


def test_the_cache_hides_itself_from_git(classifier):
    own = classifier.path / "own"
    classifier.judge(ENCODED, call="pass", arguments=(f"--qnnctx-cache-dir={own}",))
    assert "*" in (own / ".gitignore").read_text().splitlines()


def test_a_cache_that_cannot_be_one_is_told_before_anything_runs(classifier):
    (classifier.path / "file").write_text("")
    own = f"--qnnctx-cache-dir={classifier.path / 'file'}"
    ran = classifier.judge(ENCODED, arguments=(own,))
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    assert "the cache directory" in ran.text


def test_quiet_shows_what_did_not_pass(classifier):
    classifier.tests(TWO_TESTS)
    text = classifier.run("-q").text
    assert "test_net.py::test_too_big  net_w8a8" in text
    assert "test_net.py::test_good  net_w8a8" not in text
    assert "gates passed, in 2 tests" in text


def test_showing_fixtures_loses_no_test(classifier):
    classifier.tests(TWO_TESTS)
    ran = classifier.run("--fixtures-per-test")
    assert ran.result.ret == 0
    assert "without a result" not in ran.text


def test_an_expected_failure_is_marked_in_the_report(classifier):
    ran = classifier.judge("xfail\n" + ENCODED + "max_binary_mb(0.001)")
    assert ran.result.ret == 0
    assert (ran.test()["outcome"], ran.test()["xfail"]) == ("failed", True)
