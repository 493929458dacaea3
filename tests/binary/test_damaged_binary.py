"""What is no context binary, or a damaged one, never passes as fine and never kills us."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.errors import BinaryUnreadable, QnnctxError, UsageError


def outcome(path: Path) -> BinaryInfo | QnnctxError:
    """What reading gives; any other exception is a failure of the test."""
    try:
        return read_binary(path)
    except QnnctxError as error:
        return error


def outcomes(paths: list[Path]) -> list[BinaryInfo | QnnctxError]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(outcome, paths))


@pytest.mark.parametrize("name", ["v68", "two"])
def test_a_truncated_binary_is_refused(contexts, tmp_path, name):
    data = contexts[name].read_bytes()
    paths = []
    for keep in (1, 16, 200, 900, 4096, 12_600, len(data) // 2, len(data) - 1):
        path = tmp_path / f"first_{keep}.bin"
        path.write_bytes(data[:keep])
        paths.append(path)
    for path, got in zip(paths, outcomes(paths), strict=True):
        assert isinstance(got, BinaryUnreadable), path.name
        assert str(path) in got.what
        assert got.next_step


def test_bytes_after_the_end_are_refused(contexts, tmp_path):
    path = tmp_path / "longer.bin"
    path.write_bytes(contexts["v68"].read_bytes() + bytes(4096))
    with pytest.raises(BinaryUnreadable, match="30010"):
        read_binary(path)


def test_a_mutated_binary_is_read_or_refused(contexts, tmp_path):
    """The first 4 KB hold the metadata: there the vendor's parser is at its most fragile."""
    rng = random.Random(68)
    good = contexts["v68"].read_bytes()
    paths = []
    for index in range(30):
        data = bytearray(good)
        for _ in range(rng.choice((1, 4, 16))):
            data[rng.randrange(1100)] = rng.randrange(256)
        path = tmp_path / f"mutated_{index}.bin"
        path.write_bytes(data)
        paths.append(path)
    got = outcomes(paths)
    refused = [result for result in got if isinstance(result, QnnctxError)]
    assert all(isinstance(result, BinaryUnreadable) for result in refused), refused
    assert len(refused) >= 5
    for info in got:
        if isinstance(info, BinaryInfo):
            assert info.graphs
            assert info.htp_arch == "v68"


def test_a_binary_that_contradicts_itself_has_no_architecture(contexts, tmp_path):
    path = tmp_path / "patched.bin"
    data = contexts["v68"].read_bytes()
    assert data.count(b";arch=68;") == 2
    path.write_bytes(data.replace(b";arch=68;", b";arch=73;", 1))
    info = read_binary(path)
    assert info.htp_arch is None
    assert "arch=68" in info.unknown["htp_arch"]
    assert "arch=73" in info.unknown["htp_arch"]


def test_option_strings_that_contradict_the_metadata_give_no_architecture(contexts, tmp_path):
    path = tmp_path / "patched.bin"
    path.write_bytes(contexts["v68"].read_bytes().replace(b";arch=68;", b";arch=73;"))
    info = read_binary(path)
    assert info.htp_arch is None
    assert "metadata says 68" in info.unknown["htp_arch"]


def test_without_option_strings_the_metadata_gives_the_architecture(contexts, tmp_path):
    path = tmp_path / "stripped.bin"
    path.write_bytes(contexts["v68"].read_bytes().replace(b";arch=68;", b";orch=68;"))
    info = read_binary(path)
    assert info.htp_arch == "v68"
    assert info.soc is None
    assert "93" in info.unknown["soc"]
    assert info.compiled_vtcm_bytes is None
    assert "option string" in info.unknown["compiled_vtcm_bytes"]


def test_an_empty_file(tmp_path):
    path = tmp_path / "empty.bin"
    path.touch()
    with pytest.raises(BinaryUnreadable, match=r"empty\.bin is empty"):
        read_binary(path)


def make_text(path: Path) -> None:
    path.write_text("Built with v2.51.0.260929181845, soc_type=QCS6490;arch=68;vtcm_size=2097152\n")


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 * 2**20)


def make_library(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + bytes(60) + b"\x00v2.51.0.260929181845\x00" + bytes(4000))


NO_BINARIES = {"text": make_text, "sparse": make_sparse, "library": make_library}


@pytest.mark.parametrize("kind", NO_BINARIES)
def test_what_is_no_context_binary_is_refused(contexts, tmp_path, kind):
    path = tmp_path / "some.bin"
    NO_BINARIES[kind](path)
    with pytest.raises(BinaryUnreadable, match="not a context binary"):
        read_binary(path)


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("kind", NO_BINARIES)
def test_what_is_no_context_binary_is_refused_without_a_library(tmp_path, kind):
    path = tmp_path / "some.bin"
    NO_BINARIES[kind](path)
    with pytest.raises(BinaryUnreadable, match="no QNN context binary"):
        read_binary(path)


def test_the_model_beside_the_binary_is_told_apart(contexts):
    model = contexts["v68"].with_name("v68_ctx.onnx")
    with pytest.raises(BinaryUnreadable, match=r"the \.bin file beside it"):
        read_binary(model)


def test_what_is_no_file_is_a_mistake_of_the_caller(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing.bin", tmp_path / "pipe"):
        with pytest.raises(UsageError, match=str(path)):
            read_binary(path)
