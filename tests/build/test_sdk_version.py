from __future__ import annotations

import pytest

from pytest_qnnctx.build.qairt.version import version_from_text, version_from_yaml, version_tuple


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        (["product: QAIRT", "version: 2.48.0", "build_id: 260626120635"], "2.48.0.260626120635"),
        (["version: 2.37.1.250807093845"], "2.37.1.250807093845"),
        (['version: "2.37.1"', "build_id: '250807093845_124904'"], "2.37.1.250807093845"),
        (["  version: v2.40.0.251030114326"], "2.40.0.251030114326"),
        (["version: 2.45.0", "qnn_backend_api_version: 2.18.0"], "2.45.0"),
        (["version: latest"], None),
        ([], None),
    ],
)
def test_sdk_yaml(lines, version):
    assert version_from_yaml(lines) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("/opt/qcom/aistack/qairt/2.37.1.250807093845", "2.37.1.250807093845"),
        ("pid:12\nQNN SDK v2.13.2.230822171732_60416\n", "2.13.2.230822171732"),
        ("qairt-2.37.1", "2.37.1"),
        ("qairt", None),
        ("tool 1.2", None),
    ],
)
def test_paths_and_tool_output(text, version):
    assert version_from_text(text) == version


def test_versions_compare_as_numbers():
    assert version_tuple("2.9.1") < version_tuple("2.37.0.250807")
    assert version_tuple("2.37.x") == (2, 37)
