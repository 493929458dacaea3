"""The process that reads: what its end says about the file, and what about the library."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pytest_qnnctx.binary.child_process import conclude
from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.errors import BinaryUnreadable, InfrastructureError, UsageError
from pytest_qnnctx.process import ChildResult

LOADED = '{"stage": "loaded"}\n'
FILE, LIBRARY = Path("m.bin"), Path("libQnnSystem.so")


def ended(stdout: str = "", *, returncode: int = 0, timed_out: bool = False) -> ChildResult:
    return ChildResult(("python",), returncode, stdout, "last words", 2.0, timed_out)


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    """Compiles a libQnnSystem whose systemContextGetBinaryInfo has the given C body."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler to make a library that misbehaves")

    def make(body: str) -> Path:
        directory = tmp_path_factory.mktemp("library")
        source, library = directory / "fake.c", directory / "libQnnSystem.so"
        source.write_text(
            "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
            "typedef struct { uint32_t backend; const char *name; uint32_t version[3];\n"
            "  void *create, *info; } Interface;\n"
            "static uint64_t create(void **handle) { *handle = 0; return 0; }\n"
            "static uint64_t info(void *h, void *data, uint64_t size, void **out, uint64_t *n) {\n"
            f"  {body}\n}}\n"
            'static Interface interface = {0, "fake", {1, 0, 0}, create, info};\n'
            "static Interface *list[] = {&interface};\n"
            "uint64_t QnnSystemInterface_getProviders(Interface ***out, uint32_t *count) {\n"
            "  *out = list; *count = 1; return 0; }\n"
        )
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        return library

    return make


@pytest.fixture
def some_file(tmp_path: Path) -> Path:
    path = tmp_path / "m.bin"
    path.write_bytes(bytes(1000))
    return path


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("abort();", "SIGABRT"),
        ("return *(volatile int *)8;", "SIGSEGV"),
        ("_exit(0);", r"broke down .*\(exit 0\)"),
        ("return 30001;", "30001 .*not a context binary"),
        ("return 12345;", "12345"),
        ("*out = 0; return 0;", "error 0"),
    ],
)
def test_a_library_that_gives_up_on_a_file_condemns_the_file(
    fake_library, some_file, body, message
):
    with pytest.raises(BinaryUnreadable, match=message) as caught:
        read_binary(some_file, library=fake_library(body))
    assert str(some_file) in caught.value.what
    assert caught.value.next_step


def test_a_library_that_hangs_is_ended(fake_library, some_file):
    started = time.monotonic()
    with pytest.raises(BinaryUnreadable, match="time limit"):
        read_binary(some_file, library=fake_library("sleep(60); return 0;"), time_limit_s=3)
    assert time.monotonic() - started < 30


def test_what_the_library_prints_is_not_taken_for_our_own(fake_library, some_file):
    """A line that looks like a result, on the library's stdout."""
    line = r"{\"stage\": \"done\", \"metadata\": null, \"options\": {}}"
    body = f'printf("{line}\\n"); fflush(stdout); return 30010;'
    with pytest.raises(BinaryUnreadable, match="30010"):
        read_binary(some_file, library=fake_library(body))


def test_an_answer_of_an_unknown_version_does_not_condemn_the_file(fake_library, some_file):
    body = "static uint32_t answer[64] = {4}; *out = answer; return 0;"
    with pytest.raises(InfrastructureError, match="binary info version 4"):
        read_binary(some_file, library=fake_library(body))


def test_a_file_that_grows_meanwhile_is_read_again_later(fake_library, some_file):
    body = f'FILE *f = fopen("{some_file}", "a"); fputs("more", f); fclose(f); return 30010;'
    with pytest.raises(InfrastructureError, match="was changed while"):
        read_binary(some_file, library=fake_library(body))


def test_a_file_that_is_replaced_meanwhile_is_read_again_later(fake_library, some_file):
    other = some_file.with_name("other")
    other.write_bytes(some_file.read_bytes())
    body = f'rename("{other}", "{some_file}"); return 30010;'
    with pytest.raises(InfrastructureError, match="was changed while"):
        read_binary(some_file, library=fake_library(body))


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF" + bytes(100)])
def test_a_broken_library_does_not_condemn_the_file(contexts, tmp_path, content):
    library = tmp_path / "libQnnSystem.so"
    library.write_bytes(content)
    with pytest.raises(InfrastructureError, match="cannot be used"):
        read_binary(contexts["v68"], library=library)


def test_another_library_does_not_condemn_the_file(contexts):
    import _ctypes

    with pytest.raises(InfrastructureError, match="no QnnSystemInterface_getProviders"):
        read_binary(contexts["v68"], library=Path(_ctypes.__file__))


def test_no_time_at_all_does_not_condemn_the_file(contexts):
    with pytest.raises(InfrastructureError, match="did not come to the file"):
        read_binary(contexts["v68"], time_limit_s=0.0)


def test_a_library_that_is_not_there_is_a_mistake_of_the_caller(contexts, tmp_path):
    with pytest.raises(UsageError, match=r"libQnnSystem\.so"):
        read_binary(contexts["v68"], library=tmp_path / "libQnnSystem.so")


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (ended("", returncode=1), InfrastructureError),
        (ended("garbage\n", returncode=-11), InfrastructureError),
        (ended(timed_out=True), InfrastructureError),
        (ended(LOADED, returncode=-6), BinaryUnreadable),
        (ended(LOADED + "garbage\n[1]\n"), BinaryUnreadable),
        (ended(LOADED + '{"stage": "do', returncode=-11), BinaryUnreadable),
        (ended(LOADED, returncode=-9), InfrastructureError),
        (ended(LOADED, returncode=-2), InfrastructureError),
        (ended(LOADED, timed_out=True), BinaryUnreadable),
        (ended(LOADED + '{"stage": "done"', timed_out=True), BinaryUnreadable),
    ],
)
def test_an_end_without_a_result_is_never_a_result(result, error):
    with pytest.raises(error, match=r"m\.bin"):
        conclude(FILE, LIBRARY, result)
