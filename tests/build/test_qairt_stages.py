"""How a build ends where a tool does not do its work: tools of a few lines of shell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from qairt_project import QCS6490, Project, samples

from pytest_qnnctx.build.qairt.inputs import gather_inputs
from pytest_qnnctx.errors import BuildFailed, InfrastructureError, QnnctxError
from pytest_qnnctx.model import Model

TOOL = r"""#!/bin/bash
if [ "$1" = --help ]; then
  echo --input_network --output_path --quantization_overrides --input_dlc --output_dlc --model \
    --backend --dlc_path --output_dir --binary_file --config_file
  exit
fi
while [ $# -gt 0 ]; do
  case $1 in
    --output_path|--output_dlc) product=$2;;
    --output_dir) folder=$2;;
    --binary_file) product=$folder/$2.bin;;
    --config_file) config=$2;;
  esac
  shift
done
"""
WORKS = 'echo content > "$product"'


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    for name in ("QNN_SDK_ROOT", "QC_QNN_SDK_ROOT", "QC_BUILD_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    sdk = tmp_path / "2.37.1.250807093845"
    for folder in ("bin/x86_64-linux-clang", "lib/x86_64-linux-clang", "lib/hexagon-v68"):
        (sdk / folder).mkdir(parents=True)
    for library in ("libQnnHtp.so", "libQnnModelDlc.so"):
        (sdk / "lib/x86_64-linux-clang" / library).write_text("")
    (sdk / "bin/envsetup.sh").write_text(f"PATH='{sdk}/bin/x86_64-linux-clang':$PATH\n")
    (tmp_path / ".qualcomm-env").write_text(f"QC_SETUP_VERSION=1\nQC_QNN_SDK_ROOT={sdk}\n")
    (tmp_path / ".qualcomm-env").chmod(0o600)
    project = Project(tmp_path, sdk)
    for tool in ("qairt-converter", "qairt-quantizer", "qnn-context-binary-generator"):
        act(project, tool, WORKS)
    return project


def act(project: Project, tool: str, script: str) -> None:
    path = project.sdk / "bin/x86_64-linux-clang" / tool
    path.write_text(TOOL + script + "\n")
    path.chmod(0o755)


def kinds(thing) -> set[str]:
    return {finding.kind for finding in thing.findings}


TOOLS = pytest.mark.parametrize(
    "tool", ["qairt-converter", "qairt-quantizer", "qnn-context-binary-generator"]
)


def test_a_build_whose_tools_work(project):
    product = project.build(project.model())
    assert product.binary.read_text() == "content\n"
    assert {"dlc_not_read", "sdk_version_unsure"} == kinds(product)


@TOOLS
def test_exit_0_with_nothing_is_an_error_that_names_the_environment(project, tool):
    act(project, tool, "exit 0")
    with pytest.raises(InfrastructureError) as caught:
        project.build(project.model())
    assert kinds(caught.value) == {"nothing_produced"}
    assert tool in caught.value.what
    assert "envsetup" in caught.value.next_step


@TOOLS
def test_an_empty_file_is_nothing(project, tool):
    act(project, tool, ': > "$product"')
    with pytest.raises(InfrastructureError, match=tool):
        project.build(project.model())


@TOOLS
def test_a_file_beside_a_failure_is_no_success(project, tool):
    act(project, tool, f"{WORKS}; echo 'ERROR - it went wrong'; exit 1")
    with pytest.raises(BuildFailed, match="it went wrong") as caught:
        project.build(project.model())
    assert tool in caught.value.what
    assert f"== {tool} (exit 1" in caught.value.log


@TOOLS
def test_a_tool_that_is_killed_from_outside_is_not_the_models_fault(project, tool):
    act(project, tool, "kill -KILL $$")
    with pytest.raises(InfrastructureError, match="SIGKILL"):
        project.build(project.model())


def test_exit_134_of_the_generator_names_floating_point(project):
    act(project, "qnn-context-binary-generator", "ulimit -c 0; kill -ABRT $$")
    with pytest.raises(BuildFailed, match="134"):
        project.build(project.model())


def test_a_doubled_suffix_is_recognised(project):
    act(project, "qnn-context-binary-generator", 'echo content > "$product.bin"')
    product = project.build(project.model())
    assert product.binary.read_text() == "content\n"
    assert "binary_name_doubled" in kinds(product)


def test_another_file_is_not_taken_for_the_binary(project):
    act(project, "qnn-context-binary-generator", 'echo content > "$folder/other.bin"')
    with pytest.raises(QnnctxError, match=r"produced nothing|left nothing"):
        project.build(project.model())


def test_the_generator_gets_absolute_paths_and_a_configuration_that_is_there(project):
    kept = project.root / "kept"
    act(project, "qnn-context-binary-generator", f'{WORKS}; cat "$config" > {kept}')
    project.build(project.model())
    text = kept.read_text()
    assert str(project.sdk / "lib/x86_64-linux-clang/libQnnHtpNetRunExtensions.so") in text
    assert f"{project.root}/work 1/htp.json" in text


def test_a_quantizer_that_turns_out_to_want_one_of_two_is_a_usage_error(project):
    from pytest_qnnctx.errors import UsageError

    said = "ERROR - One of --input_list and --enable_float_fallback is required"
    act(project, "qairt-quantizer", f"echo '{said}'; exit 1")
    with pytest.raises(UsageError, match="calibration"):
        project.build(project.model())


def test_a_full_disk_of_ours_is_no_traceback(project):
    request = project.request(project.model())
    (request.workdir / "build.log").mkdir()
    with pytest.raises(InfrastructureError, match="building net"):
        project.toolchain().build(request, project.said.append)


# --- what the tools are given -----------------------------------------------------------------


def test_calibration_becomes_raw_float32_files_and_a_list_without_spaces(project, tmp_path):
    work = tmp_path / "a b"
    work.mkdir()
    given = samples(3)
    model = project.model({}, calibration=given)
    calibration = gather_inputs(model, QCS6490, work, project.said.append).calibration
    assert calibration is not None
    lines = calibration.text().splitlines()
    assert lines == [f"x:=calibration/{index}_0.raw" for index in range(3)]
    raw = np.fromfile(work / "calibration/2_0.raw", "<f4").reshape(1, 3, 8, 8)
    np.testing.assert_array_equal(raw, given[2]["x"])


def test_an_input_whose_name_is_no_word_is_given_by_position(project, tmp_path):
    proto = onnx.load(str(project.model().path))
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "the picture"
    onnx.save(proto, str(tmp_path / "odd.onnx"))
    given = [{"the picture": samples(1)[0]["x"]}]
    work = tmp_path / "w"
    work.mkdir()
    model = Model(tmp_path / "odd.onnx", calibration=given)
    calibration = gather_inputs(model, QCS6490, work, project.said.append).calibration
    assert calibration is not None
    assert calibration.text() == "calibration/0_0.raw\n"


def test_bits_for_what_calibration_alone_covers_follow_the_encodings(project, tmp_path):
    from dataclasses import replace

    inputs = gather_inputs(project.model(), QCS6490, tmp_path, project.said.append)
    assert inputs.bits == (8, 8)
    assert replace(inputs, quantization="w8a16").bits == (8, 16)
    assert replace(inputs, quantization="w4,8a8,16").bits == (8, 16)
    assert replace(inputs, quantization="w?a8").bits == (8, 8)
    assert Path(inputs.network).name == "net.onnx"
