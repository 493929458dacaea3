"""What an SDK tool's log says went wrong, by the table of rules, and the error that follows."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from pytest_qnnctx.build.logs.rules import FAMILIES, RULES, Rule
from pytest_qnnctx.build.ort_diagnosis import plain_log
from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.errors import BuildFailed, Finding, InfrastructureError, QnnctxError
from pytest_qnnctx.model import Target

#: Of a line this much is looked at, and shown.
_LINE_CHARACTERS = 2000
_SHOWN_CHARACTERS = 300
#: More findings than this of one kind are no longer counted out.
_MOST_FINDINGS = 500

# What a tool says at these levels is the course of its work, whatever words it uses.
_CHATTER = re.compile(
    r"\[\s*(?:VERBOSE|DEBUG|TRACE)\s*\]|\s<[VD]>\s| - (?:VERBOSE|DEBUG) - |"
    r"^\s*(?:Starting|Completed) stage:",
)
_PREFIX = re.compile(
    r"^\s*(?:\d+(?:\.\d+)?ms\s+)?(?:\[\s*[A-Z]+\s*\]\s*)?(?:Qnn\w+\s+)?(?:<[EWIVD]>\s*)?"
    r"(?:\d{4}-\d\d-\d\d \S+ - \d+ - )?(?:(?:ERROR|WARNING|INFO) - )?"
)
_QUOTED = re.compile(r"['\"`]([^'\"`]+)['\"`]")
_ERROR = re.compile(r"\b(?:error|fatal|fail\w*|exception|abort\w*|cannot|unable)\b|<E>", re.I)
_DDR = re.compile(
    r"\b(spill_bytes|fill_bytes|write_total_bytes|read_total_bytes)\s*[=:]\s*(\d{1,18})\b"
)
_DDR_HEADER = "DDR bandwidth summary"

#: The generator's and net-run's own exit codes, as far as public reports show what they mean.
_TOOL_EXITS: Mapping[int, str] = {
    11: "the device could not be created",
    14: "an op failed validation or the graph could not be composed",
    16: "the context could not be created from the binary",
    126: "the command cannot be executed",
    127: "the command was not found",
}


def diagnose(run: StageRun, target: Target) -> tuple[Finding, ...]:
    """What the run says, each finding once, in the log's order; what the exit says comes last.

    On each line the first rule that matches answers. What only follows from a cause is left out
    where a cause was found.
    """
    rules = [rule for rule in RULES if rule.applies(run, target)]
    found: dict[tuple[str, str], tuple[Rule, Finding]] = {}
    counts: defaultdict[str, int] = defaultdict(int)

    def add(rule: Rule, line: str, match: re.Match[str] | None) -> None:
        for finding in _findings(rule, line, match, run, target):
            place = (finding.kind, finding.subject)
            if counts[rule.kind] >= _MOST_FINDINGS:
                continue
            if place not in found:
                counts[rule.kind] += 1
                found[place] = (rule, finding)
            elif found[place][0].role == "symptom" and rule.role != "symptom":
                found[place] = (rule, finding)

    in_log = [rule for rule in rules if rule.pattern and rule.on == "log"]
    words = _words(in_log)
    for whole in _lines(run.log):
        lowered = whole.lower()
        if not any(word in lowered for word in words):
            continue
        line = _PREFIX.sub("", whole, count=1)
        for rule in in_log:
            if match := rule.search(line, lowered):
                add(rule, line, match)
                break
    command = " ".join(run.command)[:_LINE_CHARACTERS]
    for rule in rules:
        if not rule.pattern:
            add(rule, "", None)
        elif rule.on == "command" and (match := rule.search(command)):
            add(rule, command, match)
    has_cause = any(r.role == "cause" and r.family != "note" for r, _ in found.values())
    return tuple(f for r, f in found.values() if not (has_cause and r.role == "symptom"))


def stage_failure(
    run: StageRun, findings: tuple[Finding, ...], *, subject: str, target: Target
) -> QnnctxError:
    """The error for a run that failed: BuildFailed, or InfrastructureError where a finding says
    that the machine is at fault. ``subject`` names the model, as in "net (net.onnx)".

    Without a finding that explains it, the log's last useful lines are in the message.
    """
    what = f"{subject} does not compile for {target}: {run.stage} ended with {exit_text(run)}"
    if run.returncode == 0:
        what += " and left nothing" if not run.produced else ""
    ours = [f for f in findings if FAMILIES.get(f.kind) == "infrastructure"]
    if ours:
        what = f"compiling {subject} for {target} was stopped: {run.stage}, {exit_text(run)}"
        return InfrastructureError(what, next_step=ours[0].next_step, findings=findings)
    theirs = [f for f in findings if FAMILIES.get(f.kind, "product") == "product"]
    if theirs:
        return BuildFailed(what, next_step=theirs[0].next_step, findings=findings, log=run.log)
    last = last_useful_lines(run.log, 5)
    shown = "".join(f"\n  | {line}" for line in last) if last else ", and printed nothing"
    return BuildFailed(
        what + shown,
        next_step=f"read the whole output of {run.stage} in the build's log",
        findings=findings,
        log=run.log,
    )


def ddr_summaries(log: str) -> tuple[Mapping[str, int], ...]:
    """The compiler's DDR traffic of one inference in bytes, a mapping a graph in the log's order.

    Keys are ``spill_bytes``, ``fill_bytes``, ``write_total_bytes`` and ``read_total_bytes``, as
    far as the log has them. The block does not name its graph.
    """
    graphs: list[dict[str, int]] = []
    current: dict[str, int] | None = None
    for line in plain_log(log).splitlines():
        if _DDR_HEADER in line:
            current = None
        elif match := _DDR.search(line):
            if current is None or match[1] in current:
                current = {}
                graphs.append(current)
            current[match[1]] = int(match[2])
    return tuple(graphs)


def last_useful_lines(log: str, n: int) -> tuple[str, ...]:
    """The last ``n`` different lines that look like errors; of a log without any, its last."""
    lines = list(dict.fromkeys(_lines(log)))
    errors = [line for line in lines if _ERROR.search(line)]
    chosen = (errors or lines)[-n:] if n > 0 else []
    return tuple(line[:_SHOWN_CHARACTERS] for line in chosen)


def exit_text(run: StageRun) -> str:
    """How it ended, for people: "exit 134 (SIGABRT)", "exit 127 (the command was not found)"."""
    code = run.returncode
    name = ""
    with suppress(ValueError):
        if code < 0 or 128 < code < 192:
            name = signal.Signals(-code if code < 0 else code - 128).name
    if (not name and "qnn-" in run.stage) or code in (126, 127):
        name = _TOOL_EXITS.get(code, "")
    return f"exit {code}" + (f" ({name})" if name else "")


def _lines(log: str) -> Iterator[str]:
    for line in plain_log(log).splitlines():
        text = line[:_LINE_CHARACTERS].strip()
        if text and not _CHATTER.search(line):
            yield text


def _words(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Words one of which is in every line that a rule can answer."""
    if not all(rule.words for rule in rules):
        return ("",)
    return tuple(dict.fromkeys(word for rule in rules for word in rule.words))


def _findings(
    rule: Rule, line: str, match: re.Match[str] | None, run: StageRun, target: Target
) -> Iterator[Finding]:
    groups = {} if match is None else {k: v for k, v in match.groupdict().items() if v}
    short = line[:_SHOWN_CHARACTERS]
    for subject in _names(groups.get("subject", "")) or [rule.subject or run.stage]:
        words = {
            "subject": subject,
            "detail": groups.get("detail", short).strip(),
            "line": short,
            "stage": run.stage,
            "exit": exit_text(run),
            "target": str(target),
            "arch": target.htp_arch,
            "soc": target.soc,
        }
        yield Finding(
            rule.kind,
            subject,
            rule.message.format_map(words),
            rule.next_step.format_map(words),
        )


def _names(text: str) -> list[str]:
    """One name, or those of ``['a', 'b']``, ``'a', 'b'`` or ``a, b``."""
    parts: Iterable[str] = _QUOTED.findall(text) or text.strip("[](){}").split(",")
    names = (part.strip(" \t'\"`").rstrip(".:;") for part in parts)
    return list(dict.fromkeys(name for name in names if name))
