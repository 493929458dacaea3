"""The store: one build a key, whole or absent, whatever dies."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pytest_qnnctx.build.store import PROVENANCE_FILE, Store, binary_name
from pytest_qnnctx.errors import BuildFailed, InfrastructureError

CONTENT = b"a binary" * 1000

#: A build that notes that it ran, then does what its arguments say.
BUILDER = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from test_store import fill
    from pytest_qnnctx.build.store import Store

    root, log, seconds = Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])

    def build(workdir):
        with log.open("a") as file:
            file.write("begun\\n")
        (workdir / "half").write_bytes(b"half")
        time.sleep(seconds)
        (workdir / "half").unlink()
        fill(workdir)

    print(Store(root).get_or_build("k1", build).sha256)
    """
)


def fill(workdir: Path, content: bytes = CONTENT) -> None:
    """What a build leaves: a binary and its provenance."""
    (workdir / binary_name("net", "w8a8", "v68")).write_bytes(content)
    provenance = {
        "key": "k1",
        "model": "net",
        "files": {},
        "target": {"soc": "QCS6490", "htp_arch": "v68"},
        "toolchain": {},
        "quantization": "w8a8",
        "commands": [["compile"]],
        "built_at": "2026-01-01T00:00:00+00:00",
        "build_seconds": 1.0,
        "builder": "somebody",
        "host": "somewhere",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
    }
    (workdir / PROVENANCE_FILE).write_text(json.dumps(provenance))


def start_builder(tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent)
    argv = [here, str(tmp_path / "store"), str(tmp_path / "log"), str(seconds)]
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, *argv], stdout=subprocess.PIPE, text=True
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


def never(workdir: Path) -> None:
    pytest.fail("it was built again")


def test_a_binary_is_built_once_and_found_again(tmp_path):
    store = Store(tmp_path)
    built = store.get_or_build("k1", fill)
    assert built.path.name == "net_w8a8_v68.bin"
    assert built.path.read_bytes() == CONTENT
    assert built.provenance is not None
    assert built.provenance.builder == "somebody"
    assert store.get_or_build("k1", never) == built


def test_two_processes_build_once(tmp_path):
    builders = [start_builder(tmp_path, 0.5) for _ in range(3)]
    outputs = {builder.communicate(timeout=60)[0] for builder in builders}
    assert outputs == {hashlib.sha256(CONTENT).hexdigest() + "\n"}
    assert (tmp_path / "log").read_text() == "begun\n"


def test_a_killed_build_leaves_nothing_and_blocks_nobody(tmp_path):
    builder = start_builder(tmp_path, 60)
    wait_for(tmp_path / "log")
    os.kill(builder.pid, signal.SIGKILL)
    builder.communicate(timeout=20)
    store = Store(tmp_path / "store", lock_timeout_s=5)
    assert store.find("k1") is None
    assert store.get_or_build("k1", fill).path.read_bytes() == CONTENT
    assert list((tmp_path / "store" / "building").iterdir()) == []


def test_a_failed_build_leaves_nothing(tmp_path):
    def fail(workdir: Path) -> None:
        fill(workdir)
        raise BuildFailed("no")

    store = Store(tmp_path)
    with pytest.raises(BuildFailed):
        store.get_or_build("k1", fail)
    assert store.find("k1") is None
    assert list((tmp_path / "building").iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: (entry / "net_w8a8_v68.bin").write_bytes(b"other bytes"),
        lambda entry: (entry / "net_w8a8_v68.bin").unlink(),
        lambda entry: (entry / PROVENANCE_FILE).write_text("{"),
        lambda entry: (entry / PROVENANCE_FILE).write_text("[]"),
        lambda entry: (entry / PROVENANCE_FILE).unlink(),
    ],
)
def test_a_damaged_entry_is_built_again(tmp_path, damage):
    store = Store(tmp_path)
    damage(store.get_or_build("k1", fill).path.parent)
    assert store.find("k1") is None
    assert store.get_or_build("k1", fill).path.read_bytes() == CONTENT


def test_waiting_has_an_end_and_is_told(tmp_path):
    builder = start_builder(tmp_path, 60)
    try:
        wait_for(tmp_path / "log")
        told = []
        store = Store(tmp_path / "store", lock_timeout_s=0.2)
        with pytest.raises(InfrastructureError, match="another process"):
            store.get_or_build("k1", never, on_wait=lambda: told.append(1))
        assert told == [1]
    finally:
        builder.kill()
        builder.communicate()


def test_an_unwritable_store_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InfrastructureError, match="file"):
        Store(tmp_path / "file").get_or_build("k1", fill)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("net", "net_w8a8_v68.bin"),
        ("a/b c:d", "a_b_c_d_w8a8_v68.bin"),
        ("..", "model_w8a8_v68.bin"),
        ("", "model_w8a8_v68.bin"),
    ],
)
def test_names_are_file_names(model, name):
    assert binary_name(model, "w8a8", "v68") == name
