"""Ways in which a bad model, or none at all, once ended green; and blame on the wrong one.

BAD stands for a gate that cannot pass.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import nets
import pytest
from projects import ENCODED, FLOAT

BAD = "max_binary_mb(0.0001)"


def own_cache(project) -> str:
    return f"--qnnctx-cache-dir={project.path / 'own'}"


def test_a_reference_that_cannot_be_kept_is_no_licence(project):
    project.net("net", nets.classifier(gain=1000))
    project.net("fp32", nets.classifier(), encoded=False)
    (project.path / "own").mkdir()
    (project.path / "own" / "references").write_text("in the way")
    model = 'qnn_model("net.onnx", encodings="net.encodings", reference="fp32.onnx")\n'
    ran = project.judge(model + 'task_metric("top1", min=0.9)', arguments=(own_cache(project),))
    assert ran.result.ret == 75


def test_a_reference_that_does_not_run_is_no_licence(classifier):
    (classifier.path / "fp32.onnx").write_bytes((classifier.path / "net.onnx").read_bytes()[:-9])
    model = 'qnn_model("net.onnx", encodings="net.encodings", reference="fp32.onnx")\n'
    ran = classifier.judge(model + 'task_metric("top1", min=0.9)')
    assert ran.result.ret == 1


@pytest.mark.parametrize(
    "markers",
    [
        "max_latency_ms(0.0001, percentile=95)\nmax_latency_ms(100000)",
        "max_latency_ms(100000)\nmax_latency_ms(0.0001, percentile=95)",
        'task_metric("top1", min=1.5)\ntask_metric("top1", max_drop=0.5)',
        f"{BAD}\nmax_binary_mb(100)",
    ],
)
def test_two_markers_of_one_gate_are_both_judged(classifier, markers):
    assert classifier.judge(ENCODED + markers).result.ret == 1


def test_a_functions_marker_wins_over_its_modules(classifier):
    classifier.tests(
        f"pytestmark = [pytest.mark.{BAD}]\n\n@pytest.mark.{ENCODED}@pytest.mark.max_binary_mb(9)\n"
        "def test_a(acceptance):\n    acceptance.evaluate(dataset())\n"
    )
    assert classifier.run().result.ret == 0


@pytest.mark.parametrize(
    "call",
    [
        "try:\n        acceptance.evaluate(dataset())\n    except Exception:\n"
        "        pytest.skip('x')",
        "try:\n        acceptance.evaluate(dataset())\n    except Exception:\n"
        "        pytest.xfail('x')",
        "try:\n        acceptance.evaluate(sys.exit(0) for _ in 'a')\n"
        "    except SystemExit:\n        pass",
        "import threading, time\n    slow = (time.sleep(2) for _ in 'a')\n"
        "    made = threading.Thread(target=acceptance.evaluate, args=(slow,), daemon=True)\n"
        "    made.start()\n    time.sleep(0.2)",
        "acceptance.evaluate(None)",
        "acceptance.evaluate(3)",
        "acceptance.evaluate([])",
    ],
)
def test_a_judgement_that_was_evaded_is_no_pass(classifier, call):
    # A thread that is left behind must end with its own process, not go on in this one.
    ran = classifier.judge(ENCODED + BAD, call=call, apart="Thread" in call)
    assert ran.result.ret == 1
    ran.result.assert_outcomes(failed=1)


def test_acceptance_asked_for_while_running_is_watched(classifier):
    classifier.tests(
        f"@pytest.mark.{ENCODED}def test_a(request):\n"
        "    made = request.getfixturevalue('acceptance')\n"
        "    pytest.raises(Exception, made.evaluate, [])\n"
    )
    ran = classifier.run()
    assert ran.result.ret == 1
    assert ran.report["tests"]


def test_xfail_hides_no_mistake(classifier):
    ran = classifier.judge("xfail\n" + ENCODED, call="acceptance.evaluate([])")
    assert ran.result.ret == 1


def test_a_cache_entry_of_another_model_is_not_taken(project):
    project.net("net", nets.classifier(swap=True))
    project.net("good", nets.classifier())
    good = 'qnn_model("good.onnx", encodings="good.encodings", name="net")\n'
    bad = ENCODED + 'task_metric("top1", min=0.9)'
    project.judge(bad, arguments=(own_cache(project),))
    (entry,) = (project.path / "own" / "artifacts").iterdir()
    project.judge(good, arguments=(own_cache(project),))
    (other,) = set((project.path / "own" / "artifacts").iterdir()) - {entry}
    shutil.rmtree(entry)
    shutil.copytree(other, entry)
    assert project.judge(bad, arguments=(own_cache(project),)).result.ret == 1


WRONG_RUNNER = """
from pytest_qnnctx.run.netrun_runner import NetrunRunner

class Wrong(NetrunRunner):
    def execute(self, *args, **kwargs):
        ran = super().execute(*args, **kwargs)
        for sample in ran.outputs:
            sample["y"][:] = sample["y"][:, [1, 0, 2]]
        return ran

def pytest_qnnctx_runners():
    return [Wrong()]
"""


def test_a_record_does_not_outlive_the_runner_that_made_it(project):
    project.net("net", nets.classifier(swap=True))
    marks = ENCODED + 'task_metric("top1", min=0.9)'
    project.pytester.makeconftest(WRONG_RUNNER)
    assert project.judge(marks, arguments=(own_cache(project),)).result.ret == 0
    (project.path / "conftest.py").unlink()
    assert project.judge(marks, arguments=(own_cache(project),)).result.ret == 1


def test_a_generator_may_reuse_its_buffer(project):
    project.net("net", nets.classifier(swap=True))
    project.tests(
        f"""
        def reusing():
            buffer = np.empty((1, 3, 8, 8), np.float32)
            for inputs, label in dataset():
                buffer[...] = inputs["x"]
                yield {{"x": buffer}}, label

        @pytest.mark.{ENCODED.strip()}
        @pytest.mark.task_metric("top1", min=0.3, max=0.4)
        def test_a(acceptance):
            acceptance.evaluate(reusing())
        """
    )
    assert project.run().result.ret == 0


def test_a_metric_cannot_spoil_the_targets_of_the_reference(project):
    project.net("net", nets.classifier(swap=True))
    project.net("fp32", nets.classifier(), encoded=False)
    project.tests(
        """
        def spoiling(outputs, targets):
            right = sum(int(o["y"].argmax()) == int(t[0]) for o, t in zip(outputs, targets))
            for target in targets:
                target[0] = 99
            return right / len(targets)

        @pytest.mark.qnn_model("net.onnx", encodings="net.encodings", reference="fp32.onnx")
        @pytest.mark.task_metric(spoiling, max_drop=0.1)
        def test_a(acceptance):
            acceptance.evaluate([(inputs, np.array([label])) for inputs, label in dataset()])
        """
    )
    ran = project.run()
    assert ran.result.ret == 1
    assert ran.gate("task_metric(spoiling)")["details"]["reference_score"] == 1.0


def test_a_score_over_other_samples_is_none(classifier):
    classifier.tests(
        f"""
        from pytest_qnnctx.judge.metric import Score

        @pytest.mark.{ENCODED.strip()}
        @pytest.mark.task_metric(lambda outputs, targets: Score(1.0, 10**9), min=0.5)
        def test_a(acceptance):
            acceptance.evaluate(dataset())
        """
    )
    assert classifier.run().result.ret == 1


def test_steps_that_are_far_too_coarse_excuse_nothing(classifier):
    path = classifier.path / "net.encodings"
    coarse = json.loads(path.read_text())
    for record in coarse["activation_encodings"]:
        record["scale"] = [scale * 1000 for scale in record["scale"]]
    path.write_text(json.dumps(coarse))
    ran = classifier.judge(ENCODED)
    assert ran.verdicts()["outputs_sane"] != "pass"
    assert ran.result.ret == 1


def test_a_gate_of_a_conftest_further_down_is_judged(classifier):
    below = classifier.path / "below"
    below.mkdir()
    (below / "conftest.py").write_text(
        """
from pytest_qnnctx.judge.verdict import Outcome, Verdict

class Never:
    name = signature = "never"
    help = "never passes"
    always = False

    def limits(self, args, kwargs):
        return {}

    def needs(self, limits):
        return frozenset()

    def judge(self, limits, measurements):
        return Verdict(self.name, Outcome.FAIL, 0, 1, "", "never")

def pytest_qnnctx_gates():
    return [Never()]
"""
    )
    (below / "test_below.py").write_text(
        "import pytest\n\n@pytest.mark.qnn_model('net.onnx', encodings='net.encodings')\n"
        "@pytest.mark.never\ndef test_a(acceptance):\n    pass\n"
    )
    assert classifier.run().result.ret == 1


@pytest.mark.parametrize(
    "verdict",
    [
        'Verdict("odd", "pass", 1, 1, "", "fine")',
        'Verdict("odd", Outcome.PASS, 1, 1, "", None)',
        "None",
        "1 / 0",
    ],
)
def test_a_gate_with_a_bug_is_no_pass(classifier, verdict):
    classifier.pytester.makeconftest(
        f"""
        from pytest_qnnctx.judge.verdict import Outcome, Verdict

        class Odd:
            name = signature = "odd"
            help = "odd"
            always = False

            def limits(self, args, kwargs):
                return {{}}

            def needs(self, limits):
                return frozenset()

            def judge(self, limits, measurements):
                return {verdict}

        def pytest_qnnctx_gates():
            return [Odd()]
        """
    )
    ran = classifier.judge(ENCODED + "odd")
    assert ran.result.ret == 1
    assert ran.gate("odd")["verdict"] == "inconclusive"
    assert "bug in gate odd" in ran.gate("odd")["evidence"]


def test_a_marker_on_one_parameter_is_that_parameters(classifier):
    classifier.tests(
        f"@pytest.mark.parametrize('n', [1, pytest.param(2, marks=[pytest.mark.{ENCODED.strip()},"
        " pytest.mark.max_binary_mb(9)])])\ndef test_a(n):\n    pass\n"
    )
    ran = classifier.run()
    ran.result.assert_outcomes(passed=2)
    assert len(ran.report["tests"]) == 1


def test_a_name_with_brackets_is_a_name(classifier):
    (classifier.path / "net.onnx").rename(classifier.path / "net[v2].onnx")
    ran = classifier.judge('qnn_model("net[v2].onnx", encodings="net.encodings")')
    assert ran.result.ret == 0


@pytest.mark.parametrize("name", ["N" * 300, "../../up", "a b%c"])
def test_odd_names_are_file_names(classifier, name):
    model = f"qnn_model('net.onnx', encodings='net.encodings', name={name!r})"
    assert classifier.judge(model).result.ret == 0


def test_calibration_from_a_generator_serves_two_fixtures(project):
    project.net("net", nets.classifier(), encoded=False)
    project.tests(
        """
        made = ({"x": image} for image, _ in nets.images(4))

        @pytest.mark.qnn_model("net.onnx", calibration=made)
        def test_a(context_binary, acceptance):
            acceptance.evaluate(dataset())
        """
    )
    assert project.run().result.ret == 0


DEAD = """
from pytest_qnnctx.errors import InfrastructureError

def unreachable(board):
    raise InfrastructureError("it does not answer")

def pytest_qnnctx_transports():
    return {"local": unreachable}
"""


def test_stopping_at_the_first_error_still_tells_the_family(classifier):
    classifier.pytester.makeconftest(DEAD)
    ran = classifier.judge(ENCODED, arguments=("-x",))
    assert ran.result.ret == 75


def test_a_file_that_cannot_be_imported_is_no_infrastructure_matter(classifier):
    classifier.pytester.makeconftest(DEAD)
    (classifier.path / "test_broken.py").write_text("import nothing_of_that_name\n")
    ran = classifier.judge(ENCODED, arguments=("--continue-on-collection-errors",))
    assert ran.result.ret == 1


def test_a_report_goes_into_a_pipe_and_through_a_link(classifier):
    classifier.tests("def test_a():\n    pass\n")
    real, link = classifier.path / "real.json", classifier.path / "link.json"
    link.symlink_to(real)
    classifier.pytester.runpytest_inprocess("--board=sim", f"--qnnctx-json={link}")
    assert link.is_symlink()
    assert json.loads(real.read_text())["schema_version"] == 1
    pipe = classifier.path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        classifier.pytester.runpytest_inprocess("--board=sim", f"--qnnctx-json={pipe}")
        assert reader.stdout is not None
        assert json.loads(reader.stdout.read())["schema_version"] == 1
    assert pipe.is_fifo()


def test_an_empty_path_is_told(classifier):
    classifier.tests("def test_a():\n    pass\n")
    for option in ("--qnnctx-json=", "--qnnctx-cache-dir=", "--qnnctx-json=~nobody-of-that-name/x"):
        result = classifier.pytester.runpytest_inprocess("--board=sim", option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_killed_session_takes_its_compiler_along(project):
    """The build is large enough to be caught in the act."""
    project.net("net", nets.wide(128, 256), samples=[nets.noise(256)])
    project.tests(f"@pytest.mark.{ENCODED}def test_a(context_binary):\n    pass\n")
    own = project.path / "own"
    session = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--board=sim", f"--qnnctx-cache-dir={own}"],
        cwd=project.path,
        stdout=subprocess.DEVNULL,
    )
    try:
        compiler = _child_of(session.pid, "ort_compile")
        session.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while _runs(compiler):
            assert time.monotonic() < deadline, "the compiler outlived the session"
            time.sleep(0.05)
    finally:
        session.kill()
        session.wait()
    assert list(own.glob("artifacts/*")) == []


def _child_of(parent: int, name: str) -> int:
    """The id of the child process whose command line has ``name``, when it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        listed = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(parent)],
            check=False,
            capture_output=True,
            text=True,
        ).stdout
        for line in listed.splitlines():
            if name in line:
                return int(line.split()[0])
        time.sleep(0.01)
    pytest.fail(f"no child {name} of {parent} was seen")


def _runs(process: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], check=False, capture_output=True, text=True
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")


def test_a_compiler_that_was_sent_a_signal_says_nothing_about_the_model(project):
    project.net("net", nets.wide(128, 256), samples=[nets.noise(256)])
    project.tests(f"@pytest.mark.{ENCODED}def test_a(context_binary):\n    pass\n")
    session = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--board=sim", own_cache(project)],
        cwd=project.path,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.kill(_child_of(session.pid, "ort_compile"), signal.SIGHUP)
    text, _ = session.communicate(timeout=60)
    assert session.returncode == 75, text
    assert "SIGHUP" in text


def test_a_float_model_is_told_with_the_remedy(project):
    project.net("net", nets.classifier(), encoded=False)
    text = project.judge(FLOAT).text
    assert "calibration=" in text
    assert "[W:onnxruntime" not in text
