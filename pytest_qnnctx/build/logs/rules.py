"""The rules by which the SDK's logs are read, as one table in the order in which they are tried.

On each line the first rule that matches answers. To teach it another line, add a row to the file
of those whom it concerns.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_qnnctx.build.logs.rule import Family, Role, Rule
from pytest_qnnctx.build.logs.rules_encodings import ENCODING_RULES
from pytest_qnnctx.build.logs.rules_machine import MACHINE_RULES
from pytest_qnnctx.build.logs.rules_ops import OP_RULES
from pytest_qnnctx.build.logs.rules_options import OPTION_RULES

__all__ = ["FAMILIES", "RULES", "Family", "Role", "Rule"]

RULES: tuple[Rule, ...] = (
    *MACHINE_RULES,
    *ENCODING_RULES,
    *OP_RULES,
    *OPTION_RULES,
)

#: Who must act, by the kind of a finding.
FAMILIES: Mapping[str, Family] = MappingProxyType({rule.kind: rule.family for rule in RULES})
