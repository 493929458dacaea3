"""What one rule about a tool's log is: what it looks for, what that means, what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.model import Target

#: Who must act. A note is worth saying and ends nothing.
Family = Literal["product", "infrastructure", "note"]
#: A ``cause`` says why; a ``symptom`` is what follows from one, and is left out beside one; a
#: ``warning`` stands for itself, whatever else was found.
Role = Literal["cause", "symptom", "warning"]


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    ``pattern`` is searched in each line of the log (or, ``on="command"``, in the command line),
    case ignored; its group ``subject`` names what the finding is about (one name, names in quotes,
    or a list of names), its group ``detail`` goes into the message. The line must hold each of
    ``also`` as well, and nothing of ``unless``. A rule without a pattern speaks of the whole run.
    ``words`` (lower case) are for speed in logs of many megabytes: a line without any of them is
    not searched; where they are given, each alternative of the pattern must have one of them.

    It holds for ``stages`` (words of the tool's name; empty: all), for the exit codes ``exits``
    (empty: any), for ``produced`` (None: either), and with ``only_without_float`` only for an HTP
    that is not known to compute in floating point. ``message`` and ``next_step`` may use {subject}
    {detail} {line} {stage} {exit} {target} {arch} {soc}; ``subject`` is used where the line names
    none. ``source`` says in our words where the fact comes from, ``example`` is a line of that
    form which this rule, and no other, answers.
    """

    kind: str
    family: Family
    message: str
    next_step: str
    source: str
    pattern: str = ""
    words: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    unless: str = ""
    example: str = ""
    role: Role = "cause"
    subject: str = ""
    stages: tuple[str, ...] = ()
    exits: tuple[int, ...] = ()
    produced: bool | None = None
    only_without_float: bool = False
    on: Literal["log", "command"] = "log"

    @cached_property
    def _regexes(self) -> tuple[re.Pattern[str], tuple[re.Pattern[str], ...], re.Pattern[str]]:
        never = self.unless or r"(?!)"
        also = tuple(re.compile(text, re.IGNORECASE) for text in self.also)
        return re.compile(self.pattern, re.IGNORECASE), also, re.compile(never, re.IGNORECASE)

    def search(self, line: str, lowered: str = "") -> re.Match[str] | None:
        """The pattern's match in ``line``, where the rule answers it.

        ``lowered`` is the line in lower case, for who has many rules to try on it.
        """
        lowered = lowered or line.lower()
        if self.words and not any(word in lowered for word in self.words):
            return None
        pattern, also, unless = self._regexes
        if not all(regex.search(line) for regex in also):
            return None
        match = pattern.search(line)
        return match if match and not unless.search(line) else None

    def applies(self, run: StageRun, target: Target) -> bool:
        """Whether the rule is to be tried on this run at all."""
        if self.stages and not any(word in run.stage for word in self.stages):
            return False
        if self.exits and run.returncode not in self.exits:
            return False
        if self.produced is not None and run.produced is not self.produced:
            return False
        return not (self.only_without_float and target.has_float is True)
