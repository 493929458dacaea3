"""Run what the README shows and put what it really prints there.

    python scripts/update_readme.py

Each block between ``<!-- printed: NAME -->`` and ``<!-- end -->`` is replaced by the output of one
command, run in a copy of the project by this Python, which should be that of an environment made by
``scripts/quickstart.sh``. Only paths of the copy and of the environment are changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "quickstart": ["-m", "pytest", "conftest_examples/quickstart", "--board", "sim"],
    "doctor": ["-m", "pytest_qnnctx.cli", "doctor"],
    "inspect": ["-m", "pytest_qnnctx.cli", "inspect", "BINARY"],
}
SHOWN = {
    "quickstart": None,
    "doctor": "$ qnnctx doctor",
    "inspect": "$ qnnctx inspect digits_w8a8_v68.bin",
}


def printed(name: str, folder: Path) -> str:
    """The output of one command, in ``folder``."""
    (binary, *_) = [*folder.rglob("digits_w8a8_v68.bin"), Path("none")]
    argv = [str(binary) if word == "BINARY" else word for word in COMMANDS[name]]
    environ = {**os.environ, "COLUMNS": "110", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, *argv],
        check=False,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    text = done.stdout.replace(f"{binary.parent}/", "").replace(str(folder), "~/pytest-qnnctx")
    text = text.replace(sys.prefix, "~/pytest-qnnctx/.venv")
    lines = [SHOWN[name]] if SHOWN[name] else []
    return "\n".join([*lines, *(line.rstrip() for line in text.strip().splitlines())])


def main() -> int:
    """Replace each block."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "pytest-qnnctx"
        left_out = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "tests", "bench")
        shutil.copytree(ROOT, folder, ignore=left_out)
        for block in COMMANDS:
            pattern = rf"(<!-- printed: {block} -->\n).*?(<!-- end -->)"
            shown = f"```text\n{printed(block, folder)}\n```\n"
            text = re.sub(pattern, lambda m, new=shown: m[1] + new + m[2], text, flags=re.DOTALL)
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
