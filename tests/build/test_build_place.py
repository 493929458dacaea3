from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from pytest_qnnctx.build.qairt.place import Deadline, LocalPlace, RemotePlace
from pytest_qnnctx.errors import InfrastructureError
from pytest_qnnctx.hosts.local import LocalHost


class CountingHost(LocalHost):
    """This machine, acting as a build host, that remembers which files were copied to it."""

    def __init__(self) -> None:
        super().__init__("build host here")
        self.pushed: list[str] = []
        self.damage = False

    def push(self, local: Path, remote: str, *, timeout_s: float) -> None:
        super().push(local, remote, timeout_s=timeout_s)
        self.pushed.append(Path(remote).name)

    def pull(self, remote: str, local: Path, *, timeout_s: float) -> None:
        super().pull(remote, local, timeout_s=timeout_s)
        if self.damage:
            local.write_bytes(local.read_bytes()[:-1])


@pytest.fixture
def host() -> CountingHost:
    return CountingHost()


@pytest.fixture
def home(tmp_path) -> Path:
    path = tmp_path / "home of builder"
    path.mkdir()
    return path


@pytest.fixture
def open_place(host, home, tmp_path):
    opened = []

    def make() -> RemotePlace:
        scratch = tmp_path / f"scratch{len(opened)}"
        scratch.mkdir()
        place = RemotePlace(host, str(home), scratch, Deadline(60, "the build"))
        opened.append(place)
        return place

    yield make
    for place in opened:
        place.close()


def write_model(folder: Path) -> tuple[Path, dict[str, Path]]:
    model, data = folder / "net.onnx", folder / "weights" / "net.data"
    data.parent.mkdir(parents=True)
    model.write_bytes(b"onnx")
    data.write_bytes(b"weights" * 1000)
    return model, {"weights/net.data": data}


def test_sources_lie_as_they_lay_here_and_are_no_links(open_place, tmp_path):
    model, beside = write_model(tmp_path / "models")
    there = Path(open_place().bring(model, beside))
    assert there.name == "net.onnx"
    assert there.read_bytes() == b"onnx"
    data = there.parent / "weights" / "net.data"
    assert data.read_bytes() == b"weights" * 1000
    assert not data.is_symlink()
    assert data.stat().st_nlink == 1


def test_a_source_is_copied_once_whatever_it_is_called(open_place, host, tmp_path):
    model, beside = write_model(tmp_path / "models")
    open_place().bring(model, beside)
    assert len(host.pushed) == 2
    open_place().bring(model, beside)
    assert len(host.pushed) == 2


def test_a_source_that_was_damaged_there_is_copied_again(open_place, host, home, tmp_path):
    model, beside = write_model(tmp_path / "models")
    open_place().bring(model, beside)
    sha = hashlib.sha256(b"onnx").hexdigest()
    (kept,) = (home / ".cache/qnnctx/sources").glob(f"{sha}-*")
    kept.write_bytes(b"ONNX")
    there = open_place().bring(model, beside)
    assert Path(there).read_bytes() == b"onnx"
    assert host.pushed[-1] == kept.name


def test_a_folder_goes_as_one_archive_that_is_copied_once(open_place, host, tmp_path):
    folder = tmp_path / "calibration"
    folder.mkdir()
    for index in range(5):
        (folder / f"{index}.raw").write_bytes(bytes([index]) * 10)
    there = Path(open_place().bring_folder(folder))
    assert sorted(p.name for p in there.iterdir()) == [f"{i}.raw" for i in range(5)]
    assert (there / "3.raw").read_bytes() == b"\3" * 10
    assert len(host.pushed) == 1
    os.utime(folder / "0.raw", (1, 1))
    open_place().bring_folder(folder)
    assert len(host.pushed) == 1


def test_two_builds_do_not_share_a_directory_and_leave_none(open_place, home):
    one, other = open_place(), open_place()
    assert one.workdir != other.workdir
    one.write("a.txt", "one")
    other.write("a.txt", "other")
    assert Path(one.workdir, "a.txt").read_text() == "one"
    one.close()
    other.close()
    assert list((home / ".cache/qnnctx/work").iterdir()) == []


def test_what_a_killed_build_left_is_removed_later_and_a_young_one_stays(open_place, home):
    killed, young = open_place(), open_place()
    old = time.time() - 3 * 24 * 3600
    os.utime(killed.workdir, (old, old))
    open_place()
    left = {p.name for p in (home / ".cache/qnnctx/work").iterdir()}
    assert Path(killed.workdir).name not in left
    assert Path(young.workdir).name in left


def test_a_result_is_fetched_and_held_to_its_hash(open_place, host, tmp_path):
    place = open_place()
    result = Path(place.workdir, "net.bin")
    result.write_bytes(b"binary")
    assert place.fetch(str(result), tmp_path / "got.bin").read_bytes() == b"binary"
    host.damage = True
    with pytest.raises(InfrastructureError, match="sha256"):
        place.fetch(str(result), tmp_path / "bad.bin")


def test_a_home_that_cannot_be_written_is_named(host, tmp_path):
    with pytest.raises(InfrastructureError, match="make a directory for the build"):
        RemotePlace(host, str(tmp_path / "absent"), tmp_path, Deadline(60, "the build"))


def test_here_nothing_is_copied(host, tmp_path):
    model, beside = write_model(tmp_path / "models")
    place = LocalPlace(host, tmp_path)
    assert place.bring(model, beside) == str(model)
    assert place.bring_folder(tmp_path / "models") == str(tmp_path / "models")
    made = tmp_path / "made.bin"
    made.write_bytes(b"1")
    assert place.fetch(str(made), tmp_path / "kept.bin").read_bytes() == b"1"
    assert not made.exists()
    assert host.pushed == []


def test_time_that_is_over_is_an_infrastructure_error():
    deadline = Deadline(0.001, "building net for QCS6490")
    time.sleep(0.01)
    with pytest.raises(InfrastructureError, match="building net for QCS6490 was given up"):
        deadline.left()
