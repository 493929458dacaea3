"""Unpacking a tar stream of a directory from a machine that is not trusted with this one."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

_CHUNK = 1 << 20


def unpack_tree(stream: IO[bytes], target: Path) -> None:
    """Make the directory ``target`` of the tar ``stream``: directories, files, symbolic links.

    Nothing is written outside ``target``: links are made last, so that no file goes through one.
    Raises OSError where a member is anything else (a device, a FIFO), has a name that leads out,
    or the stream is no whole tar.
    """
    target.mkdir()
    modes: list[tuple[Path, int]] = []
    links: list[tuple[Path, str]] = []
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                path = target / _inside(member.name)
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                    modes.append((path, member.mode & 0o777 | 0o700))
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.issym():
                    links.append((path, member.linkname))
                elif member.islnk():
                    shutil.copy(target / _inside(member.linkname), path)
                elif member.isreg():
                    content = archive.extractfile(member)
                    assert content is not None
                    with path.open("wb") as written:
                        shutil.copyfileobj(content, written, _CHUNK)
                    path.chmod(member.mode & 0o777)
                else:
                    raise OSError(f"'{member.name}' is neither a file nor a directory")
    except tarfile.TarError as error:
        raise OSError(f"what came is no whole tar archive ({error})") from error
    for path, destination in links:
        path.symlink_to(destination)
    for path, mode in reversed(modes):
        path.chmod(mode)


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise OSError(f"'{name}' leads out of the directory")
    return path
