"""A tar from another machine makes a directory, and nothing outside it."""

from __future__ import annotations

import io
import tarfile

import pytest

from pytest_qnnctx.hosts.tar_tree import unpack_tree


def tar(*members: tuple[str, dict, bytes]) -> io.BytesIO:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, values, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in values.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return io.BytesIO(written.getvalue())


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, dict, bytes]:
    return name, {"type": kind, "linkname": to}, b""


def test_directories_files_and_links(tmp_path):
    stream = tar(
        ("./a", {"type": tarfile.DIRTYPE, "mode": 0o500}, b""),
        ("./a/file", {"mode": 0o4755}, b"text"),
        ("b/c/deep", {}, b"deep"),
        link("link", "a/file"),
        link("hard", "a/file", tarfile.LNKTYPE),
    )
    unpack_tree(stream, tmp_path / "tree")
    tree = tmp_path / "tree"
    assert (tree / "hard").read_text() == (tree / "link").read_text() == "text"
    assert (tree / "a" / "file").stat().st_mode & 0o7777 == 0o755
    assert (tree / "a").stat().st_mode & 0o777 == 0o700
    assert (tree / "b" / "c" / "deep").read_text() == "deep"


@pytest.mark.parametrize(
    "member",
    [
        ("/absolute", {}, b"x"),
        ("../out", {}, b"x"),
        ("a/../../out", {}, b"x"),
        ("fifo", {"type": tarfile.FIFOTYPE}, b""),
        ("device", {"type": tarfile.CHRTYPE}, b""),
        link("hard", "../outside", tarfile.LNKTYPE),
        link("hard", "/etc/hostname", tarfile.LNKTYPE),
        link("hard", "never-came", tarfile.LNKTYPE),
    ],
)
def test_what_is_refused(tmp_path, member):
    (tmp_path / "outside").write_text("secret")
    with pytest.raises(OSError):
        unpack_tree(tar(member), tmp_path / "tree")
    assert not (tmp_path / "out").exists()


def test_no_file_is_written_through_a_link(tmp_path):
    (tmp_path / "outside").mkdir()
    stream = tar(link("door", str(tmp_path / "outside")), ("door/file", {}, b"x"))
    with pytest.raises(OSError):
        unpack_tree(stream, tmp_path / "tree")
    assert list((tmp_path / "outside").iterdir()) == []


def test_no_file_is_read_through_a_link(tmp_path):
    (tmp_path / "outside").write_text("secret")
    stream = tar(link("door", str(tmp_path / "outside")), link("copy", "door", tarfile.LNKTYPE))
    with pytest.raises(OSError):
        unpack_tree(stream, tmp_path / "tree")


@pytest.mark.parametrize("keep", [0, 100, 700, 3000])
def test_a_tar_that_is_cut_off(tmp_path, keep):
    whole = tar(("file", {}, b"x" * 4000)).getvalue()
    with pytest.raises(OSError):
        unpack_tree(io.BytesIO(whole[:keep]), tmp_path / "tree")
