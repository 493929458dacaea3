"""The toolchain ``qairt`` against a stand-in SDK whose generator really compiles."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from qairt_project import (
    QCS6490,
    V237,
    V245,
    Project,
    encodings,
    make_project,
    network,
    samples,
)
from standin_sdk import runs, set_quirks

from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.errors import (
    BuildFailed,
    InfrastructureError,
    ProductFailure,
    UsageError,
)
from pytest_qnnctx.model import Model, Target


def outside(monkeypatch, home: Path) -> None:
    """Let no SDK and no configuration from outside the test be seen."""
    for name in ("QNN_SDK_ROOT", "QC_QNN_SDK_ROOT", "QC_BUILD_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture(autouse=True)
def no_sdk_from_outside(monkeypatch, tmp_path):
    outside(monkeypatch, tmp_path)


@pytest.fixture
def project(tmp_path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def new_project(tmp_path) -> Project:
    return make_project(tmp_path, V245)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project, and what its model with encodings became."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("built")
        outside(patch, root)
        project = make_project(root)
        return project, project.build(project.model())


def kinds(error_or_product) -> set[str]:
    return {finding.kind for finding in error_or_product.findings}


# --- what comes out ---------------------------------------------------------------------------


def test_a_model_with_encodings_becomes_a_v68_binary(built):
    _, product = built
    info = read_binary(product.binary)
    assert (info.htp_arch, info.soc, info.qnn_version) == ("v68", "QCS6490", V237)
    (graph,) = info.graphs
    assert graph.name == "net"
    assert (graph.optimization_level, graph.vtcm_bytes) == (3, 2 << 20)
    assert product.quantization == "w8a8"
    assert product.float_ops == ()
    assert product.host_ops == ()
    assert product.asked == {
        "htp_arch": "v68",
        "soc_model": 93,
        "vtcm_mb": 2,
        "optimization_level": 3,
    }
    assert [set(block) >= {"spill_bytes"} for block in product.ddr] == [True]
    assert onnx.load(str(product.files["quantized_model"])).graph.node


def test_the_encodings_are_found_again_in_the_dlc(built):
    _, product = built
    assert product.encodings is not None
    assert product.encodings.differing == ()
    assert product.encodings.unseen == ()
    assert product.encodings.applied == 6


def test_what_is_recorded_has_no_scratch_paths_and_every_stage(built):
    project, product = built
    tools = [command[0] for command in product.commands]
    assert tools == [
        "qairt-converter",
        "qairt-quantizer",
        "qairt-dlc-info",
        "qnn-context-binary-generator",
    ]
    text = " ".join(word for command in product.commands for word in command)
    assert str(project.root) not in text
    assert "--input_network net.onnx --quantization_overrides net.encodings" in text
    assert "--input_dlc converted/net.dlc --output_dlc quantized/net.dlc" in text
    assert "--binary_file net " in text
    log = product.files["log"].read_text()
    assert re.findall(r"^== (\S+) \(exit 0", log, re.MULTILINE) == tools
    assert "Conversion complete!" in log


def test_it_says_which_sdk_works_where_and_at_what(built):
    project, _ = built
    assert any(str(project.sdk) in line and V237 in line for line in project.said)
    assert any(line.startswith("qairt-quantizer: net for QCS6490") for line in project.said)


def test_a_quantized_onnx_goes_through_as_it_is(built, project):
    _, first = built
    kept = project.root / "net_qdq.onnx"
    kept.write_bytes(first.files["quantized_model"].read_bytes())
    product = project.build(Model(kept))
    assert product.quantization == "w8a8"
    assert product.encodings is not None
    assert product.encodings.version == "QDQ"
    assert read_binary(product.binary).htp_arch == "v68"
    assert not any("--quantization_overrides" in command for command in product.commands)


def test_dynamic_shapes_and_odd_names_are_no_problem(project):
    onnx.save(network("N"), str(project.root / "net.onnx"))
    with pytest.raises(ProductFailure) as caught:
        project.build(project.model())
    assert kinds(caught.value) == {"dynamic_input"}
    shaped = project.model(name="2nd model/v1", input_shapes={"x": (1, 3, 8, 8)})
    (graph,) = read_binary(project.build(shaped).binary).graphs
    assert graph.name == "m_2nd_model_v1"
    assert [tuple(t.shape) for t in graph.inputs] == [(1, 3, 8, 8)]


def test_calibration_alone_quantizes_too(new_project):
    product = new_project.build(new_project.model({}, calibration=samples()))
    assert read_binary(product.binary).htp_arch == "v68"
    assert product.quantization == "w8a8"
    assert product.encodings is None
    assert "quantized_model" not in product.files
    (quantizer,) = runs(new_project.sdk, "qairt-quantizer")
    assert "--input_list" in quantizer["argv"]
    assert "--enable_float_fallback" not in quantizer["argv"]


def test_the_tools_run_outside_the_users_library_path(project, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/from/an/esdk")
    set_quirks(project.sdk, ["cd", "envsetup_appends"])
    assert read_binary(project.build(project.model()).binary).htp_arch == "v68"


# --- identity and options ---------------------------------------------------------------------


def test_identity_is_the_sdks_version(project):
    identity = project.toolchain().identify()
    assert (identity.name, identity.version, identity.qnn_version) == ("qairt", V237, V237)


def test_without_an_sdk_it_says_what_to_do(project):
    (project.root / ".qualcomm-env").unlink()
    with pytest.raises(InfrastructureError) as caught:
        project.toolchain().identify()
    assert "QC_QNN_SDK_ROOT" in caught.value.next_step


def test_a_half_written_configuration_is_a_usage_error(project):
    (project.root / ".qualcomm-env").write_text("QC_QNN_SDK_ROOT=/opt/qairt\n")
    with pytest.raises(UsageError, match="QC_SETUP_VERSION"):
        project.toolchain().identify()


def test_what_changes_the_output_is_in_the_options(project):
    model = project.model()
    plain = project.toolchain().options(model, QCS6490)
    assert plain["vtcm_mb"] == "2"
    assert plain["optimization_level"] == "3"
    assert project.toolchain(float_fallback=True).options(model, QCS6490) != plain
    wider = Target("QCS6490", "v68", 93, 4, has_float=False)
    assert project.toolchain().options(model, wider) != plain


def test_an_unknown_soc_is_a_usage_error(project):
    with pytest.raises(UsageError, match="XYZ"):
        project.build(project.model(), Target("XYZ", "v68"))


# --- before anything is built -----------------------------------------------------------------


def test_a_missing_architecture_stops_before_any_tool_works(project):
    target = Target("SM8750", "v79", 69, 8, has_float=True)
    with pytest.raises(InfrastructureError, match="v68, v73"):
        project.build(project.model(), target)
    assert runs(project.sdk) == []


@pytest.mark.parametrize(
    ("missing", "kind"),
    [("libQnnModelDlc.so", "shim_missing"), ("qairt-quantizer", "tool_missing")],
)
def test_a_missing_part_of_the_sdk_is_named(tmp_path, missing, kind):
    machine = "lib" if missing.startswith("lib") else "bin"
    project = make_project(tmp_path, without=[f"{machine}/x86_64-linux-clang/{missing}"])
    with pytest.raises(InfrastructureError, match=re.escape(missing)) as caught:
        project.build(project.model())
    assert kinds(caught.value) == {kind}
    assert runs(project.sdk) == []


def test_tools_that_the_environment_hides_are_named_with_the_cause(project):
    set_quirks(project.sdk, ["envsetup_leaves_path"])
    with pytest.raises(InfrastructureError, match="PATH reset") as caught:
        project.build(project.model())
    assert kinds(caught.value) == {"tool_missing"}


def test_an_sdk_without_the_inspector_or_sdk_yaml_still_builds_and_says_so(tmp_path):
    project = make_project(tmp_path, without=["qairt-dlc-info", "sdk.yaml"])
    product = project.build(project.model())
    assert product.float_ops == ()
    assert {"dlc_not_read", "sdk_version_unsure"} <= kinds(product)
    assert product.encodings is not None
    assert product.encodings.applied == 0
    assert any("the directory's name" in line for line in project.said)


def test_encodings_that_match_nothing_are_found_before_the_sdk_drops_them(project):
    with pytest.raises(ProductFailure) as caught:
        project.build(project.model(encodings(more=("renamed",))))
    assert "encoding_unmatched" in kinds(caught.value)
    with pytest.raises(ProductFailure) as caught:
        project.build(project.model(encodings(without=("r",))))
    assert "tensor_uncovered" in kinds(caught.value)
    assert runs(project.sdk) == []


def test_a_float_model_for_a_part_without_float_is_refused_with_its_ops(project):
    with pytest.raises(BuildFailed) as caught:
        project.build(project.model({}))
    assert {f.subject for f in caught.value.findings} >= {"conv (Conv)", "fc (Gemm)"}
    assert kinds(caught.value) == {"float_op"}
    assert "calibration=" in caught.value.next_step
    assert runs(project.sdk) == []


# --- float fallback ---------------------------------------------------------------------------


def test_a_version_that_wants_one_of_two_says_so_before_it_runs(new_project):
    with pytest.raises(UsageError) as caught:
        new_project.build(new_project.model())
    assert "2.45.40" in str(caught.value)
    assert "--qnnctx-float-fallback" in str(caught.value)
    assert runs(new_project.sdk) == []


def test_calibration_beside_encodings_satisfies_it(new_project):
    product = new_project.build(new_project.model(calibration=samples()))
    assert read_binary(product.binary).htp_arch == "v68"
    assert "calibration_unused" not in kinds(product)
    assert product.encodings is not None
    assert product.encodings.differing == ()


def test_opting_in_uses_the_versions_own_flag_and_is_recorded(new_project):
    product = new_project.build(new_project.model(), float_fallback=True)
    assert "--enable_float_fallback" in product.commands[1]
    assert "float_fallback_allowed" in kinds(product)
    assert read_binary(product.binary).htp_arch == "v68"


def test_encodings_that_the_quantizer_drops_are_named_by_their_ops(project):
    set_quirks(project.sdk, drop_encodings=["r"])
    with pytest.raises(BuildFailed) as caught:
        project.build(project.model())
    assert any("conv" in f.subject.lower() for f in caught.value.findings if f.kind == "float_op")
    assert "== qairt-converter" in caught.value.log


def test_encodings_that_the_quantizer_changes_are_told(project):
    set_quirks(project.sdk, recompute_encodings=["r"])
    product = project.build(project.model())
    assert product.encodings is not None
    assert any(line.startswith("r: ") for line in product.encodings.differing)


# --- what goes wrong in a stage ---------------------------------------------------------------


def test_a_graph_that_the_sdk_renames_still_gets_its_options(project):
    set_quirks(project.sdk, graph_name="other_graph")
    product = project.build(project.model())
    (graph,) = read_binary(product.binary).graphs
    assert graph.name == "other_graph"
    assert graph.optimization_level == 3
    assert "graph_renamed" in kinds(product)


def test_the_time_limit_holds_over_all_stages(project):
    set_quirks(project.sdk, sleep_s={"qairt-converter": 100})
    with pytest.raises(InfrastructureError, match="qairt-converter was stopped"):
        project.build(project.model(), seconds=9)
