"""netrun as one file that ``python3 FILE`` runs on a board."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

_NAME = "qnnctx_netrun"
_MAIN = f"import sys\n\nfrom {_NAME}.cli import main\n\nsys.exit(main())\n"
_LEFT_OUT = {"__main__.py", "bundle.py"}


def write_bundle(path: Path) -> Path:
    """Write netrun as a zip application to ``path``; the same sources give the same bytes."""
    package = Path(__file__).parent
    files = {"__main__.py": _MAIN.encode()}
    for source in sorted(package.glob("*.py")):
        if source.name not in _LEFT_OUT:
            files[f"{_NAME}/{source.name}"] = source.read_bytes()
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, data)
    partial.replace(path)
    return path
