"""Where settings come from, and who wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_qnnctx.config import OPTIONS, resolve
from pytest_qnnctx.errors import UsageError


def settings(tmp_path: Path, line=None, environ=None, ini=None):
    return resolve(
        lambda option: (line or {}).get(option.flag),
        lambda option: (ini or {}).get(option.name, ""),
        tmp_path / "root",
        invoked_from=tmp_path / "here",
        environ=environ or {},
    )


def test_defaults(tmp_path):
    found = settings(tmp_path)
    assert found.board is None
    assert found.toolchain == "auto"
    assert found.cache_dir == tmp_path / "root" / ".qnnctx-cache"
    assert found.boards_file is None
    assert not found.require_hardware


def test_the_command_line_wins_over_the_environment_and_that_over_the_ini_file(tmp_path):
    sources = {
        "line": {"--board": "a"},
        "environ": {"QNNCTX_BOARD": "b"},
        "ini": {"qnnctx_board": "c"},
    }
    found = settings(tmp_path, **sources)
    assert (found.board, found.origins["board"]) == ("a", "--board")
    del sources["line"]
    found = settings(tmp_path, **sources)
    assert (found.board, found.origins["board"]) == ("b", "environment variable QNNCTX_BOARD")
    del sources["environ"]
    found = settings(tmp_path, **sources)
    assert (found.board, found.origins["board"]) == ("c", "ini option qnnctx_board")


def test_paths_are_relative_to_where_they_were_written(tmp_path):
    assert settings(tmp_path, {"--qnnctx-json": "r.json"}).json == tmp_path / "here/r.json"
    assert settings(tmp_path, ini={"qnnctx_json": "r.json"}).json == tmp_path / "root/r.json"
    assert settings(tmp_path, {"--qnnctx-json": "/abs/r.json"}).json == Path("/abs/r.json")


def test_boards_yaml_at_the_root_is_found(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "boards.yaml").write_text("boards: {}\n")
    assert settings(tmp_path).boards_file == tmp_path / "root" / "boards.yaml"


@pytest.mark.parametrize("text", ["yes", "1", "TRUE", "on"])
def test_switches(tmp_path, text):
    assert settings(tmp_path, ini={"qnnctx_require_hardware": text}).require_hardware
    assert settings(tmp_path, {"--qnnctx-require-hardware": True}).require_hardware


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"QNNCTX_REQUIRE_HARDWARE": "perhaps"}, "QNNCTX_REQUIRE_HARDWARE: 'perhaps'"),
        ({"QNNCTX_LEASE_TIMEOUT": "soon"}, "QNNCTX_LEASE_TIMEOUT: 'soon'"),
        ({"QNNCTX_LEASE_TIMEOUT": "-1"}, "QNNCTX_LEASE_TIMEOUT"),
        ({"QNNCTX_LEASE_TIMEOUT": "nan"}, "QNNCTX_LEASE_TIMEOUT"),
    ],
)
def test_a_bad_value_names_its_source(tmp_path, environ, said):
    with pytest.raises(UsageError, match=said):
        settings(tmp_path, environ=environ)


def test_names_are_unique_and_regular():
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    assert all(option.variable.startswith("QNNCTX_") for option in OPTIONS)
