"""Finding libQnnSystem."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_qnnctx.binary.library import find_system_library, locate_system_library
from pytest_qnnctx.errors import UsageError


def test_the_variable_comes_first(tmp_path):
    library = tmp_path / "libQnnSystem.so"
    library.touch()
    found = locate_system_library({"QNNCTX_QNN_SYSTEM_LIB": str(library), "QNN_SDK_ROOT": "/x"})
    assert (found.path, found.reason) == (library, "QNNCTX_QNN_SYSTEM_LIB")


def test_a_variable_that_names_nothing_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="QNNCTX_QNN_SYSTEM_LIB"):
        locate_system_library({"QNNCTX_QNN_SYSTEM_LIB": str(tmp_path / "gone.so")})


def test_none_switches_the_library_off():
    found = locate_system_library({"QNNCTX_QNN_SYSTEM_LIB": "none"})
    assert found.path is None
    assert "QNNCTX_QNN_SYSTEM_LIB" in found.reason


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names the x86-64 directory")
def test_the_sdk_comes_before_the_wheel(tmp_path):
    library = tmp_path / "lib" / "x86_64-linux-clang" / "libQnnSystem.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert locate_system_library({"QNN_SDK_ROOT": str(tmp_path)}).path == library


def test_an_sdk_without_it_is_passed_over(tmp_path):
    pytest.importorskip("onnxruntime_qnn")
    found = locate_system_library({"QNN_SDK_ROOT": str(tmp_path)})
    assert found.path is not None
    assert found.reason == "the installed onnxruntime-qnn"


def test_looking_imports_nothing_of_the_wheel():
    code = (
        "import sys; from pytest_qnnctx.binary.library import find_system_library\n"
        "find_system_library()\n"
        "print(sorted({'onnxruntime', 'onnxruntime_qnn', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_path_alone_is_the_same():
    found = find_system_library()
    assert found == locate_system_library().path
    assert found is None or Path(found).is_file()
