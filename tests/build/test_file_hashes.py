"""Hashes remembered by file identity: never trusted for longer than the file is the same."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_qnnctx.build.pins import file_hashes
from pytest_qnnctx.build.pins.file_hashes import HashMemory


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def settled(tmp_path_factory) -> Path:
    """A directory with files that are old enough to be remembered."""
    folder = tmp_path_factory.mktemp("settled")
    for name in ("a", "b", "same size", "replaced", "linked", "touched", "kept"):
        (folder / name).write_bytes(name.encode().ljust(20))
    time.sleep(file_hashes.RACY_NS / 1e9 + 0.1)
    return folder


def remembered(memory: Path) -> dict[str, list]:
    return json.loads(memory.read_text())["files"] if memory.exists() else {}


def learn(memory: Path, file: Path) -> str:
    with HashMemory(memory) as known:
        return known.sha256_of(file)


def plant(memory: Path, file: Path, hash_: str = "f" * 64) -> None:
    """Make the memory say something false of ``file``, to see when it is believed."""
    learn(memory, file)
    data = json.loads(memory.read_text())
    data["files"][str(file)][-1] = hash_
    memory.write_text(json.dumps(data))


def test_an_unchanged_file_is_not_read_again(settled, tmp_path):
    memory, file = tmp_path / "cache" / "hashes.json", settled / "kept"
    assert learn(memory, file) == sha256(file)
    plant(memory, file)
    assert learn(memory, file) == "f" * 64
    assert (memory.parent / ".gitignore").exists()


def test_other_content_of_the_same_size_and_time_is_seen(settled, tmp_path):
    memory, file = tmp_path / "hashes.json", settled / "same size"
    plant(memory, file)
    before = file.stat()
    file.write_bytes(b"x" * before.st_size)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert learn(memory, file) == sha256(file)


def test_a_file_put_in_place_of_another_is_seen(settled, tmp_path):
    memory, file = tmp_path / "hashes.json", settled / "replaced"
    plant(memory, file)
    (settled / "b").replace(file)
    assert learn(memory, file) == sha256(file)


def test_a_link_that_leads_elsewhere_is_seen(settled, tmp_path):
    memory, link = tmp_path / "hashes.json", tmp_path / "link"
    link.symlink_to(settled / "a")
    plant(memory, link)
    assert learn(memory, link) == "f" * 64
    link.unlink()
    link.symlink_to(settled / "kept")
    assert learn(memory, link) == sha256(settled / "kept")


def test_a_touched_file_is_read_again(settled, tmp_path):
    memory, file = tmp_path / "hashes.json", settled / "touched"
    plant(memory, file)
    file.touch()
    assert learn(memory, file) == sha256(file)


def test_a_file_that_was_just_written_is_not_remembered(tmp_path):
    memory, file = tmp_path / "hashes.json", tmp_path / "fresh"
    file.write_text("one")
    assert learn(memory, file) == sha256(file)
    assert remembered(memory) == {}


def test_a_date_in_the_past_makes_no_fresh_file_old(tmp_path):
    memory, file = tmp_path / "hashes.json", tmp_path / "fresh"
    file.write_text("one")
    os.utime(file, (1, 1))
    learn(memory, file)
    assert remembered(memory) == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 1, "files": 3}',
        '{"version": 1, "files": {"a": [1, 2, 3]}}',
        '{"version": 1, "files": {"a": [1, 2, 3, 4, 5, "no hash"]}}',
        '{"version": 1, "files": {"a": [1, 2, 3, 4, true, "%s"]}}' % ("0" * 64),
        '{"version": 99, "files": {}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_memory_is_ignored_and_replaced(settled, tmp_path, content):
    memory = tmp_path / "hashes.json"
    memory.write_text(content)
    assert learn(memory, settled / "a") == sha256(settled / "a")
    assert list(remembered(memory)) == [str(settled / "a")]


def test_what_another_process_learnt_is_kept(settled, tmp_path):
    memory = tmp_path / "hashes.json"
    with HashMemory(memory) as first, HashMemory(memory) as second:
        first.sha256_of(settled / "a")
        second.sha256_of(settled / "kept")
    assert set(remembered(memory)) == {str(settled / "a"), str(settled / "kept")}


def test_many_processes_at_once_leave_a_whole_file(settled, tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from pytest_qnnctx.build.pins.file_hashes import HashMemory\n"
        "for _ in range(30):\n"
        "    memory = HashMemory(Path(sys.argv[1]))\n"
        "    memory.sha256_of(Path(sys.argv[2])); memory._learnt = dict(memory._known)\n"
        "    memory.save()\n"
    )
    memory = tmp_path / "hashes.json"
    argv = [sys.executable, "-c", code, str(memory)]
    children = [subprocess.Popen([*argv, str(settled / name)]) for name in ("a", "kept", "a")]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
    assert remembered(memory)
    assert not list(tmp_path.glob("*.tmp"))


def test_the_memory_is_bounded(settled, tmp_path, monkeypatch):
    monkeypatch.setattr(file_hashes, "MOST_FILES", 1)
    memory = tmp_path / "hashes.json"
    learn(memory, settled / "a")
    learn(memory, settled / "kept")
    assert list(remembered(memory)) == [str(settled / "kept")]


def test_a_memory_that_cannot_be_written_stops_nothing(settled, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert learn(tmp_path / "file" / "hashes.json", settled / "a") == sha256(settled / "a")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        learn(tmp_path / "hashes.json", tmp_path / "nothing")
