"""Reading the SDK's logs by the table of rules. Lines are ours, in the form of public ones."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.build.logs.diagnosis import (
    ddr_summaries,
    diagnose,
    exit_text,
    last_useful_lines,
    stage_failure,
)
from pytest_qnnctx.build.logs.rules import RULES
from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.errors import BuildFailed, Finding, InfrastructureError
from pytest_qnnctx.model import Target

V68 = Target("QCS6490", "v68", 93, 2, has_float=False)
V73 = Target("SM8550", "v73", 43, 8, has_float=True)
GENERATOR = "qnn-context-binary-generator"


def ran(log="", code=1, stage=GENERATOR, *, command=(), produced=False):
    return StageRun(stage, tuple(command), code, log, 1.0, produced)


def kinds(run, target=V68):
    return [finding.kind for finding in diagnose(run, target)]


def names(run, kind, target=V68):
    return [finding.subject for finding in diagnose(run, target) if finding.kind == kind]


# Encodings


@pytest.mark.parametrize(
    ("line", "subjects"),
    [
        ("WARNING - Encodings for ['a.w', 'b.w'] not found, skipping", ["a.w", "b.w"]),
        ("WARNING - Encoding for tensor 'a.w' was ignored", ["a.w"]),
        ("WARNING - Skipping override of tensor conv: it is not in the graph", ["conv"]),
        ("WARNING - Quantization override for /layer.1/Conv_output_0 not found", None),
        ("WARNING - 3 unmatched encodings: a, b.w, c", ["a", "b.w", "c"]),
        ("WARNING - Unused quantization overrides: a.w", ["a.w"]),
        ("WARNING - could not find tensor act_3 named in quantization_overrides", ["act_3"]),
        ("2026 - 240 - WARNING - Ignoring all quantization overrides", None),
    ],
)
def test_lost_encodings_are_found_by_their_words(line, subjects):
    run = ran(line, 0, "qairt-converter", produced=True)
    found = names(run, "encoding_unmatched")
    assert found
    if subjects is not None:
        assert found == subjects
    assert line.split(" - ")[-1][:20] in diagnose(run, V68)[0].message


@pytest.mark.parametrize(
    "line",
    [
        "INFO - Skipping quantization, no input_list provided",
        "INFO - 0 encodings skipped",
        "INFO - encodings: 12 applied, skipped: 0",
        "INFO - No encodings were ignored",
        "INFO - Applied 12 encodings",
        "INFO - Ignoring the ascii encoding of file x",
        "INFO - Running: qairt-quantizer --ignore_quantization_overrides",
        "INFO - Skipping simplification",
        "[VERBOSE] encoding of tensor x not found",
    ],
)
def test_other_lines_with_such_words_are_no_lost_encodings(line):
    assert "encoding_unmatched" not in kinds(ran(line, 0, "qairt-converter", produced=True))


@pytest.mark.parametrize(
    "line",
    [
        "WARNING - No encoding found for tensor relu_3.out",
        "WARNING - Missing encodings for relu_3.out",
        "WARNING - No quantization encoding given for tensor 'relu_3.out'",
    ],
)
def test_tensors_without_an_encoding_are_another_matter(line):
    assert names(ran(line, 0, "qairt-quantizer"), "tensor_uncovered") == ["relu_3.out"]


def test_encodings_are_the_converters_business_alone():
    line = "WARNING - Encodings for ['a.w'] not found, skipping"
    assert kinds(ran(line, 0, GENERATOR, produced=True)) == []


# Floating point and ops


@pytest.mark.parametrize(
    ("line", "subjects"),
    [
        ("WARNING - Op node_Softmax_12 falls back to float", ["node_Softmax_12"]),
        ("WARNING - Falling back to FP16 for op 'Softmax'", ["Softmax"]),
        ("WARNING - float fallback: /net/Gelu", ["/net/Gelu"]),
        ("WARNING - tensor act.7 stays in float32", ["act.7"]),
    ],
)
def test_float_fallbacks_are_named_and_refused_without_float(line, subjects):
    run = ran(line, 0, "qairt-quantizer", produced=True)
    assert names(run, "float_op") == subjects
    assert names(run, "float_fallback", V73) == subjects
    assert names(run, "float_op", V73) == []


def test_a_target_of_unknown_kind_counts_as_one_without_float():
    run = ran("WARNING - Op n_1 falls back to float", 0, "qairt-quantizer", produced=True)
    assert names(run, "float_op", Target("QCS1", "v68")) == ["n_1"]


@pytest.mark.parametrize(
    "line", ["INFO - running with --enable_float_fallback", "INFO - float_fallback=False"]
)
def test_the_name_of_the_flag_is_no_fallback(line):
    assert kinds(ran(line, 0, "qairt-quantizer", produced=True)) == []


def test_refused_ops_are_named_once_and_the_generic_lines_are_left_out():
    log = (
        "[4294967295] has incorrect Value 68, expected >= 73.\n"
        "QnnDsp <E> validateNativeOps mm_3:qti.aisw:MatMul htp op validator failed 3110\n"
        "QnnDsp <E> QnnBackend_validateOpConfig failed 3110\n"
        "QnnDsp <E> Failed to validate op mm_3 with error 0xc26\n"
        "QnnDsp <E> Failed to validate op tanh_4 with error 0xc26\n"
    )
    found = [(f.kind, f.subject) for f in diagnose(ran(log, 14), V68)]
    assert found == [
        ("arch_too_old", "HTP architecture"),
        ("unsupported_op", "mm_3"),
        ("unsupported_op", "tanh_4"),
    ]


def test_an_exit_134_is_explained_by_the_op_where_one_is_named():
    log = "Tensor 'tokens' has a floating-point type which is not supported by the device."
    assert kinds(ran(log, 134)) == ["float_op"]


def test_an_exit_134_speaks_of_floats_only_where_there_are_none():
    on_v68, on_v73 = diagnose(ran("", 134), V68), diagnose(ran("", 134), V73)
    assert "floating point" in on_v68[0].message
    assert "floating point" not in on_v73[0].message


def test_what_follows_from_a_cause_is_left_out():
    log = (
        '  0.0ms [ ERROR ] dp.cc:149:ERROR:A single op, "q::Crouton" (Op ID: 11), requires '
        "0x2400000 bytes of TCM, which is greater than the TCM size of 0x800000!\n"
        '  0.0ms [ ERROR ] QnnDsp <E> "norm_3" generated: Requires 0x2400000 bytes of TCM, which '
        "is greater than the TCM size of 0x800000!\n"
        "  0.0ms [ ERROR ] QnnDsp <E> RouterX86 graph prepare failed 13\n"
        "  0.0ms [ ERROR ] QnnDsp <E> Failed to finalize graph (id: 1) with err 1002\n"
    )
    (finding,) = diagnose(ran(log, 14), V68)
    assert (finding.kind, finding.subject) == ("vtcm_exceeded", "norm_3")
    assert "0x2400000" in finding.message
    assert kinds(ran("\n".join(log.splitlines()[2:]), 14))[0] == "finalize_failed"


def test_a_warning_does_not_hide_what_ended_the_run():
    log = "WARNING - Encodings for ['a.w'] not found, skipping"
    assert kinds(ran(log, 0, "qairt-converter")) == ["encoding_unmatched", "nothing_produced"]


def test_findings_come_in_the_order_of_the_log_each_once():
    log = "Unsupported op B_2\nUnsupported op A_1\nUnsupported op B_2\n"
    assert names(ran(log), "unsupported_op") == ["B_2", "A_1"]


def test_colours_do_not_matter():
    assert names(ran("\x1b[31mUnsupported op B_2\x1b[m"), "unsupported_op") == ["B_2"]


def test_a_good_run_has_no_findings():
    log = (
        "pid:1536142\nStarting stage: Graph Optimizations\n"
        "Completed stage: Graph Optimizations (603465 us)\n <W> Initializing HtpProvider\n"
        "rpcmem_android.c:38:dummy call to rpcmem_init, rpcmem APIs will be used from libxdsprpc\n"
        "====== DDR bandwidth summary ======\nspill_bytes=0\n"
        "2026-01-02 - 235 - INFO - Conversion complete!\n"
    )
    for stage in ("qairt-converter", "qairt-quantizer", GENERATOR):
        assert diagnose(ran(log, 0, stage, produced=True), V68) == ()


# The error


@pytest.mark.parametrize(
    ("log", "code", "error", "told"),
    [
        ("Unsupported op B_2", 14, BuildFailed, "exit 14 (an op failed validation"),
        ("", 134, BuildFailed, "exit 134 (SIGABRT)"),
        ("", 139, BuildFailed, "exit 139 (SIGSEGV)"),
        ("", 137, InfrastructureError, "exit 137 (SIGKILL)"),
        ("", 143, InfrastructureError, "exit 143 (SIGTERM)"),
        ("OSError: [Errno 28] No space left on device", 1, InfrastructureError, "free some space"),
        ("ERROR: license expired", 1, InfrastructureError, "licence"),
        ("libc++.so.1: cannot open shared object file", 1, InfrastructureError, "libc++.so.1"),
        ("QnnDsp <E> openSession qnn_open failed, 0x80000406", 11, InfrastructureError, "ADSP"),
        ("", 0, InfrastructureError, "envsetup.sh"),
        ("", 1, BuildFailed, "printed nothing"),
    ],
)
def test_the_error_is_of_those_who_must_act(log, code, error, told):
    run = ran(log, code)
    raised = stage_failure(run, diagnose(run, V68), subject="net (net.onnx)", target=V68)
    assert type(raised) is error
    assert told in str(raised)
    for word in ("net (net.onnx)", GENERATOR, "QCS6490", "Next: "):
        assert word in str(raised)


def test_a_refusal_keeps_findings_and_the_whole_log():
    run = ran("noise\nUnsupported op B_2\nmore", 14)
    raised = stage_failure(run, diagnose(run, V68), subject="net", target=V68)
    assert isinstance(raised, BuildFailed)
    assert [f.subject for f in raised.findings] == ["B_2"]
    assert raised.log == run.log


def test_an_unknown_failure_shows_the_last_useful_lines():
    log = "\n".join(["Loading", "ERROR: the frobnicator is bent", *["progress"] * 3])
    raised = stage_failure(ran(log), (), subject="net", target=V68)
    assert isinstance(raised, BuildFailed)
    assert "the frobnicator is bent" in str(raised)
    assert "progress" not in str(raised)


def test_a_note_is_no_explanation():
    run = ran(
        "INFO - Skipping quantization, no input_list provided\nERROR - odd", 1, "qairt-converter"
    )
    raised = stage_failure(run, diagnose(run, V68), subject="net", target=V68)
    assert "odd" in str(raised)


def test_findings_of_others_are_taken_for_the_models_fault():
    raised = stage_failure(ran(), (Finding("new_kind", "x", "m"),), subject="net", target=V68)
    assert isinstance(raised, BuildFailed)


@pytest.mark.parametrize(
    ("stage", "code", "text"),
    [
        (GENERATOR, 11, "exit 11 (the device could not be created)"),
        ("qairt-converter", 11, "exit 11"),
        ("qairt-converter", 127, "exit 127 (the command was not found)"),
        (GENERATOR, -9, "exit -9 (SIGKILL)"),
        (GENERATOR, 191, "exit 191"),
        (GENERATOR, 1, "exit 1"),
    ],
)
def test_exits_have_names(stage, code, text):
    assert exit_text(ran("", code, stage)) == text


def test_last_useful_lines_prefer_errors_and_say_each_once():
    log = "a\nERROR one\nb\nERROR two\nERROR two\nc"
    assert last_useful_lines(log, 5) == ("ERROR one", "ERROR two")
    assert last_useful_lines(log, 1) == ("ERROR two",)
    assert last_useful_lines("a\nb\nc", 2) == ("b", "c")
    assert last_useful_lines("", 2) == ()
    assert last_useful_lines(log, 0) == ()


# Traffic


def test_each_graph_has_its_figures():
    block = (
        "Starting stage: Finalizing Graph Sequence\n\n====== DDR bandwidth summary ======\n"
        "spill_bytes={}\nfill_bytes=0\nwrite_total_bytes=65536\nread_total_bytes=11130880\n\n"
        "Completed stage: Finalizing Graph Sequence (9903 us)\n"
    )
    first, second = ddr_summaries(block.format(0) + block.format(4194304))
    assert first == {
        "spill_bytes": 0,
        "fill_bytes": 0,
        "write_total_bytes": 65536,
        "read_total_bytes": 11130880,
    }
    assert second["spill_bytes"] == 4194304


def test_missing_figures_and_prefixes_are_tolerated():
    log = (
        "[ INFO ] ====== DDR bandwidth summary ======\n[ INFO ]  write_total_bytes=739328\n"
        "  12.3ms [  INFO ] read_total_bytes = 309248\nspill_bytes=many\n"
    )
    assert ddr_summaries(log) == ({"write_total_bytes": 739328, "read_total_bytes": 309248},)
    assert ddr_summaries("====== DDR bandwidth summary ======\n") == ()
    assert ddr_summaries("nothing") == ()
    assert ddr_summaries("spill_bytes=" + "9" * 5000) == ()


def test_a_graph_begins_where_a_figure_comes_again_even_without_its_heading():
    log = "spill_bytes=1\nfill_bytes=2\nspill_bytes=3\n"
    assert ddr_summaries(log) == ({"spill_bytes": 1, "fill_bytes": 2}, {"spill_bytes": 3})


# Anything may stand in a log

LINES = st.lists(st.sampled_from([r.example for r in RULES if r.example]) | st.text(), max_size=8)


@given(
    log=LINES.map("\n".join),
    code=st.integers(-70, 300),
    stage=st.sampled_from(["qairt-converter", "qairt-quantizer", GENERATOR, "", "{x}"]),
    produced=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_no_text_breaks_it(log, code, stage, produced):
    run = StageRun(stage, ("a", "b"), code, log, 0.0, produced)
    for target in (V68, V73):
        findings = diagnose(run, target)
        assert len({(f.kind, f.subject) for f in findings}) == len(findings)
        assert str(stage_failure(run, findings, subject="{net}", target=target))
    ddr_summaries(log)
    last_useful_lines(log, 3)


@pytest.mark.parametrize(
    "line",
    [
        "encoding not found " + "a" * 5000,
        "'" * 5000,
        "encoding skip " + "tensor " * 900,
        "./" * 3000 + ": permission denied",
        "float fallback " + "x_1 " * 1000,
        "license " * 700,
    ],
    ids=range(6),
)
def test_long_lines_cost_little(line):
    started = time.monotonic()
    diagnose(ran((line + "\n") * 20, 1, "qairt-converter"), V68)
    assert time.monotonic() - started < 5
