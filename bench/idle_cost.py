"""What the plugin costs a suite that does not use it.

The same 400 plain tests run with the plugin installed and with ``-p no:qnnctx``, in turns; the
ratio of the medians is printed. Run it where the package is installed:

    python bench/idle_cost.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.05
SUITE = (
    "import pytest\n\n@pytest.mark.parametrize('n', range(400))\ndef test(n):\n    assert n < 400\n"
)


def run(folder: Path, *extra: str) -> float:
    started = time.perf_counter()
    # As a user has it: compiled modules are kept.
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *extra, str(folder)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environ)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_plain.py").write_text(SUITE)
        (folder / "pytest.ini").write_text("[pytest]\n")
        run(folder)
        run(folder, "-p", "no:qnnctx")
        idle, without = [], []
        for index in range(rounds):
            order = [(idle, ()), (without, ("-p", "no:qnnctx"))]
            for times, extra in order if index % 2 else reversed(order):
                times.append(run(folder, *extra))
    ratio = statistics.median(idle) / statistics.median(without)
    print(
        f"idle cost: {ratio:.3f}x (limit {LIMIT}x); medians of {rounds}: "
        f"{statistics.median(idle):.3f} s with, {statistics.median(without):.3f} s without"
    )
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
