"""What ``qnnctx build --check`` costs when nothing changed, against reading everything.

Makes a manifest of 100 models of 5 MB each, and checks it: with an empty cache, so that every file
is read and hashed, and with the hashes remembered. Each check is a process of its own, as in CI.
The ratio of the median times is printed, and the seconds that the unchanged check took. The files
are in the page cache in both cases; from a disk the ratio is smaller still.

    python bench/manifest_check.py [--rounds 9] [--models 100] [--mb 5]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 0.5
SECONDS_LIMIT = 1.0
#: Files are remembered when they are older than this (seconds): see build/pins/file_hashes.py.
SETTLED_S = 2.2
COMMAND = [sys.executable, "-m", "pytest_qnnctx.cli", "build", "--check"]


def pin(folder: Path, number: int, size: int) -> tuple[str, dict[str, object]]:
    """A pin whose model has an ONNX of ``size`` bytes, encodings and a binary."""
    name = f"model{number:03}"
    contents = {
        f"models/{name}.onnx": os.urandom(size),
        f"models/{name}.encodings": os.urandom(20_000),
        f"binaries/{name}.bin": os.urandom(size // 4),
    }
    hashes = {}
    for path, content in contents.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
        hashes[path] = hashlib.sha256(content).hexdigest()
    onnx, encodings, binary = hashes
    target = {"soc": "QCS6490", "htp_arch": "v68"}
    provenance = {
        "key": "0" * 64,
        "model": name,
        "files": {"onnx": {"name": f"{name}.onnx", "sha256": hashes[onnx]}},
        "target": target,
        "toolchain": {"name": "qairt", "version": "2.37.0", "qnn_version": "2.37.0"},
        "quantization": "w8a16",
        "commands": [["qairt-converter", "--input_network", f"{name}.onnx"]],
        "built_at": "2026-01-01T00:00:00+00:00",
        "build_seconds": 60.0,
        "builder": "ci",
        "host": "buildbox",
        "sha256": hashes[binary],
        "size_bytes": size // 4,
    }
    return f"{name} for QCS6490/v68", {
        "model": name,
        "target": target,
        "sources": {
            "onnx": {"path": onnx, "sha256": hashes[onnx]},
            "encodings": {"path": encodings, "sha256": hashes[encodings]},
        },
        "input_shapes": {},
        "calibration": None,
        "binary": {"file": f"{name}.bin", "sha256": hashes[binary], "size_bytes": size // 4},
        "provenance": provenance,
    }


def check(folder: Path) -> float:
    """Seconds of one check, which must find that nothing changed."""
    started = time.perf_counter()
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(COMMAND, check=True, cwd=folder, env=environ)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--mb", type=float, default=5.0)
    arguments = parser.parse_args()
    size = int(arguments.mb * 1e6)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        pins = dict(pin(folder, number, size) for number in range(arguments.models))
        data = {"schema_version": 1, "store": "binaries", "pins": pins}
        (folder / "qnnctx.lock").write_text(json.dumps(data, indent=2))
        time.sleep(SETTLED_S)
        first, unchanged = [], []
        for _ in range(arguments.rounds):
            shutil.rmtree(folder / ".qnnctx-cache", ignore_errors=True)
            first.append(check(folder))
            unchanged.append(check(folder))
        assert len(
            json.loads((folder / ".qnnctx-cache/file-hashes.json").read_text())["files"]
        ) == (3 * arguments.models)
        # What is remembered must not hide a change: one byte, the size and the time as before.
        path = folder / "models" / "model000.onnx"
        before = path.stat()
        with path.open("r+b") as file:
            first_byte = file.read(1)[0]
            file.seek(0)
            file.write(bytes([first_byte ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        changed = subprocess.run(COMMAND, check=False, cwd=folder, capture_output=True, text=True)
        assert changed.returncode == 1, changed
        assert "model000.onnx changed" in changed.stdout, changed
    seconds, ratio = (
        statistics.median(unchanged),
        statistics.median(unchanged) / statistics.median(first),
    )
    print(
        f"manifest check, {arguments.models} models of {arguments.mb:g} MB: {ratio:.3f}x unchanged "
        f"against reading all (limit {LIMIT}x); medians of {arguments.rounds}: {seconds:.3f} s "
        f"(limit {SECONDS_LIMIT:g} s), {statistics.median(first):.3f} s; a change was seen"
    )
    return 0 if ratio <= LIMIT and seconds <= SECONDS_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
