"""What only this machine does."""

from __future__ import annotations

from pytest_qnnctx.hosts.local import LocalHost


def test_a_file_that_is_no_program_cannot_be_executed(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    plain.chmod(0o755)
    assert LocalHost().execute([str(plain)], timeout_s=10).returncode == 126
