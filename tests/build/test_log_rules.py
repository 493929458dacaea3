"""The table of rules by which the SDK's logs are read: each row answers, and says what to do."""

from __future__ import annotations

import pytest

from pytest_qnnctx.build.logs.diagnosis import diagnose
from pytest_qnnctx.build.logs.rules import FAMILIES, RULES, Rule
from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.model import Target

V68 = Target("QCS6490", "v68", 93, 2, has_float=False)
V73 = Target("SM8550", "v73", 43, 8, has_float=True)
TOOLS = {"converter": "qairt-converter", "quantizer": "qairt-quantizer"}
GENERATOR = "qnn-context-binary-generator"


def ran(log="", code=1, stage=GENERATOR, *, command=(), produced=False):
    return StageRun(stage, tuple(command), code, log, 1.0, produced)


def run_for(rule: Rule) -> StageRun:
    """The run that a rule's own example is from."""
    stage = TOOLS.get(rule.stages[0], GENERATOR) if rule.stages else GENERATOR
    code = rule.exits[0] if rule.exits else 1
    if rule.on == "command":
        return ran("", code, stage, command=rule.example.split())
    return ran(rule.example, code, stage, produced=bool(rule.produced))


def target_for(rule: Rule) -> Target:
    return V73 if rule.kind == "float_fallback" else V68


def kinds(run, target=V68):
    return [finding.kind for finding in diagnose(run, target)]


def names(run, kind, target=V68):
    return [finding.subject for finding in diagnose(run, target) if finding.kind == kind]


# The table itself


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.pattern[:20]}")
def test_a_rule_answers_its_own_example_and_no_other_rule_does(rule):
    run, target = run_for(rule), target_for(rule)
    if rule.pattern:
        assert rule.example
        text = rule.example
        answering = next(
            other
            for other in RULES
            if other.pattern
            and other.on == rule.on
            and other.applies(run, target)
            and other.search(text)
        )
        assert answering is rule
    assert set(kinds(run, target)) == {rule.kind}


def test_each_rule_says_what_to_do_and_where_it_is_from():
    for rule in RULES:
        assert rule.next_step.strip()
        assert rule.source.strip()
        assert rule.pattern or rule.exits, rule.kind
        assert rule.family in ("product", "infrastructure", "note")


def test_a_kind_has_one_family():
    for rule in RULES:
        assert FAMILIES[rule.kind] == rule.family, rule.kind


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.pattern[:20]}")
def test_messages_leave_no_blank_unfilled(rule):
    for finding in diagnose(run_for(rule), target_for(rule)):
        assert "{" not in finding.message.replace("input_shapes={", "")
        assert finding.message.strip()
        assert finding.subject.strip()


# Every row of the troubleshooting table, by name


@pytest.mark.parametrize(
    ("symptom", "kind", "run"),
    [
        (
            "encodings seem ignored",
            "encoding_unmatched",
            ran("WARNING - Encoding 'gone.out' not found in the graph", 0, "qairt-converter"),
        ),
        (
            "much slower than expected: float fallbacks",
            "float_op",
            ran("WARNING - Op node_Gelu_3 falls back to float", 0, "qairt-quantizer"),
        ),
        (
            "much slower than expected: HTP-to-CPU round trips",
            "cpu_fallback",
            ran("WARNING - node_NonZero_3 will run on the CPU", 0),
        ),
        (
            "libQnnModelDlc.so not found",
            "shim_missing",
            ran("[ ERROR ] libQnnModelDlc.so: cannot open shared object file: No such file"),
        ),
        (
            ".bin.bin",
            "binary_name_doubled",
            ran("", 0, command=["qnn-context-binary-generator", "--binary_file", "net.bin"]),
        ),
        ("exit 134", "abort", ran("pid:17", 134)),
        ("exit 0, nothing produced", "nothing_produced", ran("", 0)),
        (
            "tool not found after sourcing",
            "tool_missing",
            ran("bash: line 3: qairt-converter: command not found", 127, "qairt-converter"),
        ),
        (
            "tool not found after sourcing with sh",
            "sourced_with_sh",
            ran("sh: 1: source: not found", 127, "qairt-converter"),
        ),
        (
            "binary fails to load on the board",
            "arch_mismatch",
            ran("QnnDsp <E> Request feature arch with value 73 unsupported", 16),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_of_the_troubleshooting_table_are_named(symptom, kind, run):
    """Three rows have more than a log to go by and are named elsewhere as well:

    a binary that fails to load: the gate ``htp_arch``, before it is staged; right on the CPU and
    wrong on the HTP: ``judge/blame.py`` by the quantized model's score on the CPU; a board that
    disappears during the copy: the transport's error of a failed push.
    """
    findings = [f for f in diagnose(run, V68) if f.kind == kind]
    assert findings, symptom
    assert all(f.message and f.next_step for f in findings)


def test_words_are_in_lower_case():
    assert all(word == word.lower() != "" for rule in RULES for word in rule.words)
