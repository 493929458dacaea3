"""Check that the documents are true where a machine can tell.

Every relative link and every file named in a command exists; every option, marker and fixture of
the plugin is named in the README, and the README names no option that does not exist.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("conftest_examples/**/*.md")]
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
_SCRIPT = re.compile(r"\b(?:bash|python) ((?:scripts|bench|conftest_examples)/[\w./-]+)")
_OPTION = re.compile(r"--(?:qnnctx-[a-z-]+|boards?(?:-file)?)\b")


def problems() -> list[str]:
    """One line a problem."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for link in _LINK.findall(text):
            if not (document.parent / link).exists():
                found.append(f"{document.name}: the link '{link}' leads nowhere")
        for script in _SCRIPT.findall(text):
            if not (ROOT / script).exists():
                found.append(f"{document.name}: '{script}' does not exist")
    return found + _names((ROOT / "README.md").read_text())


def _names(readme: str) -> list[str]:
    from pytest_qnnctx.config import OPTIONS
    from pytest_qnnctx.fixtures import NAMES
    from pytest_qnnctx.judge.gates import BUILT_IN

    options = {option.flag for option in OPTIONS}
    words = options | {gate.name for gate in BUILT_IN} | {n for n in NAMES if n[0] != "_"}
    found = [f"README.md does not name {word}" for word in sorted(words) if word not in readme]
    unknown = sorted(set(_OPTION.findall(readme)) - options)
    return found + [f"README.md names {option}, which does not exist" for option in unknown]


def main() -> int:
    """Print all problems; 1 where there is any."""
    found = problems()
    print("\n".join(found) or f"{len(DOCUMENTS)} documents are true, as far as this can tell")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
