"""The toolchain ``onboard`` on a board that is this machine: its generator really compiles."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onboard_site import Reached, Site
from qairt_project import QCS6490, V237, encodings, network
from standin_sdk import make_model_library, make_sdk, runs, set_quirks

from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.build.onboard.toolchain import GENERATOR
from pytest_qnnctx.build.toolchain import BuildRequest
from pytest_qnnctx.errors import BuildFailed, InfrastructureError, UsageError
from pytest_qnnctx.hosts.local import LocalHost
from pytest_qnnctx.hosts.ssh import open_ssh
from pytest_qnnctx.model import Model, Target

SM8550 = Target("SM8550", "v73", 43, 8, has_float=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The model with its encodings, ``libnet.so`` and ``net_net.json``."""
    folder = tmp_path_factory.mktemp("made")
    onnx.save(network(), str(folder / "net.onnx"))
    (folder / "net.encodings").write_text(json.dumps(encodings()))
    make_model_library(folder / "net.onnx", folder, encodings=folder / "net.encodings")
    return folder


@pytest.fixture(scope="module")
def sdk(tmp_path_factory) -> Path:
    return make_sdk(tmp_path_factory.mktemp("sdk") / V237, V237)


@pytest.fixture
def site(made, sdk, tmp_path, monkeypatch) -> Iterator[Site]:
    for name in ("QC_BUILD_HOST", "QC_QNN_SDK_ROOT", "QNN_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("QC_QAIRT_VERSION", V237)
    for file in made.iterdir():
        shutil.copy(file, tmp_path)
    yield Site(tmp_path, sdk)
    set_quirks(sdk)


def kinds(thing: Any) -> set[str]:
    return {finding.kind for finding in thing.findings}


# --- what comes out ---------------------------------------------------------------------------


def test_a_library_becomes_a_binary_on_the_board(site):
    product = site.build()
    info = read_binary(product.binary)
    assert (info.htp_arch, info.soc, info.qnn_version) == ("v68", "QCS6490", V237)
    (graph,) = info.graphs
    assert (graph.name, graph.optimization_level, graph.vtcm_bytes) == ("net", 3, 2 << 20)
    assert product.asked == {
        "htp_arch": "v68",
        "soc_model": 93,
        "vtcm_mb": 2,
        "optimization_level": 3,
    }
    assert (product.quantization, product.float_ops, product.host_ops) == ("w8a8", (), ())
    assert product.findings == ()
    assert [set(block) >= {"spill_bytes"} for block in product.ddr] == [True]
    # The encodings are found again in what the converter wrote of the library.
    assert product.encodings is not None
    assert product.encodings.applied == product.encodings.total == 6
    assert product.encodings.differing == ()
    # No scratch path is recorded, the whole log is, and the board is as it was.
    (command,) = product.commands
    assert command[:3] == (GENERATOR, "--model", "libnet.so")
    assert str(site.root) not in " ".join(command)
    assert "DDR bandwidth summary" in product.files["log"].read_text()
    assert onnx.load(str(product.files["quantized_model"])).graph.node
    assert list((site.root / "staging 1" / "work").iterdir()) == []
    assert any("compiling libnet.so" in line and "board rb3" in line for line in site.said)


def test_a_board_over_ssh(site, sshd):
    inner = open_ssh("buildbox", name="board far", config_file=sshd.config_file)
    host = site.host(inner)
    product = site.build(host=host)
    host.close()
    assert read_binary(product.binary).htp_arch == "v68"
    assert any("on board far" in line for line in site.said)


def test_without_the_converters_json_v68_itself_says_that_nothing_is_in_float(site):
    (site.root / "net_net.json").unlink()
    product = site.build()
    assert product.float_ops == ()
    (finding,) = product.findings
    assert finding.kind == "float_ops_by_architecture"
    assert "net_net.json" in finding.message
    # The encodings are not claimed to be there.
    assert product.encodings is not None
    assert product.encodings.applied == 0


def test_without_the_converters_json_v73_may_compute_in_float(site):
    (site.root / "net_net.json").unlink()
    product = site.build(target=SM8550)
    assert product.float_ops is None
    assert product.findings == ()
    assert read_binary(product.binary).htp_arch == "v73"


def test_float_ops_are_named_from_the_converters_json(site):
    """A library that was never quantized, for a part that computes in float."""
    for name in ("net.encodings", "libnet.so", "net_net.json"):
        (site.root / name).unlink()
    make_model_library(site.root / "net.onnx", site.root)
    (site.root / "net_net.json").write_text(json.dumps(FLOAT_NET))
    product = site.build(Model(site.root / "net.onnx"), SM8550)
    assert product.float_ops == ("conv (Conv2d)",)
    assert product.quantization == "float32"
    assert product.encodings is None


FLOAT_NET = {
    "graph": {
        "tensors": {
            "x": {"data_type": 0x0232, "dims": [1, 8, 8, 3], "type": 0},
            "r": {"data_type": 0x0232, "dims": [1, 8, 8, 3], "type": 3},
        },
        "nodes": {"conv": {"type": "Conv2d", "input_names": ["x"], "output_names": ["r"]}},
    }
}


# --- identity and options ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "version"),
    [(V237, V237), (f"v{V237}", V237), ("2.37.1", "2.37.1"), (" 2.37.1 ", "2.37.1")],
)
def test_the_declared_version_is_the_identity(site, monkeypatch, declared, version):
    monkeypatch.setenv("QC_QAIRT_VERSION", declared)
    found = site.toolchain.identify()
    assert (found.name, found.version, found.qnn_version) == ("onboard", version, version)


@pytest.mark.parametrize("declared", ["", "new", "2.37", "2.37.x"])
def test_an_undeclared_version_is_a_usage_error(site, monkeypatch, declared):
    monkeypatch.setenv("QC_QAIRT_VERSION", declared)
    with pytest.raises(UsageError, match="QC_QAIRT_VERSION"):
        site.toolchain.identify()


def test_another_library_or_json_is_another_binary(site):
    def options() -> Mapping[str, str]:
        return site.toolchain.options(site.model, QCS6490)

    first = options()
    content = (site.root / "libnet.so").read_bytes()
    assert first["library_sha256"] == hashlib.sha256(content).hexdigest()
    assert first["vtcm_mb"] == "2"
    net = site.root / "net_net.json"
    text = net.read_text()
    net.unlink()
    second = options()
    net.write_text(text + "\n")
    third = options()
    (site.root / "libnet.so").unlink()
    (site.root / "libnet.so").write_bytes(content + b"\0")
    assert len({tuple(sorted(one.items())) for one in (first, second, third, options())}) == 4


# --- before anything is compiled --------------------------------------------------------------


def test_without_a_library_no_board_is_opened(site):
    (site.root / "libnet.so").unlink()
    with pytest.raises(UsageError, match=r"there is no libnet\.so"):
        site.build()
    assert not (site.root / "staging 1").exists()


def test_no_board_was_selected(site):
    work = site.root / "work"
    work.mkdir()
    with pytest.raises(UsageError, match="none was selected") as caught:
        site.toolchain.build(BuildRequest(site.model, QCS6490, work, 60), site.said.append)
    assert "--board NAME" in caught.value.next_step


def test_a_board_without_the_generator(site):
    host = Reached(LocalHost("board rb3"), "/usr/bin:/bin")
    with pytest.raises(InfrastructureError, match=f"board rb3 has no {GENERATOR} on its PATH") as c:
        site.build(host=host)
    assert "bin/aarch64-" in c.value.next_step
    assert list((site.root / "staging 1" / "by-sha256").iterdir()) == []


def test_a_board_without_its_libraries(site):
    elsewhere = str(site.root / "no libs")
    with pytest.raises(InfrastructureError, match=r"has no .*no libs/libQnnHtp\.so") as caught:
        site.build(lib_dir=elsewhere)
    assert "lib_dir" in caught.value.next_step


def test_where_boards_yaml_does_not_say_it_the_libraries_are_the_systems(site):
    with pytest.raises(InfrastructureError, match=r"has no /usr/lib/libQnnHtp\.so"):
        site.build(lib_dir=None)


@pytest.mark.parametrize("declared", ["2.45.40.260406", "2.37.2", "2.37.1.1"])
def test_a_generator_of_another_version_is_refused(site, monkeypatch, declared):
    monkeypatch.setenv("QC_QAIRT_VERSION", declared)
    with pytest.raises(InfrastructureError) as caught:
        site.build()
    assert f"is of QNN {V237}; QC_QAIRT_VERSION says {declared}" in caught.value.what
    assert "QC_QAIRT_VERSION" in caught.value.next_step
    assert not any("--model" in run["argv"] for run in runs_here(site))


def runs_here(site: Site) -> list[dict[str, Any]]:
    """The generator's runs for this test's files."""
    return [run for run in runs(site.sdk, GENERATOR) if str(site.root) in " ".join(run["argv"])]


def test_a_generator_that_does_not_say_its_version(site, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / GENERATOR).write_text("#!/bin/sh\necho usage: none\n")
    (tools / GENERATOR).chmod(0o755)
    host = Reached(LocalHost("board rb3"), f"{tools}:/usr/bin:/bin")
    with pytest.raises(InfrastructureError, match="does not say its version"):
        site.build(host=host)


# --- what goes wrong on the board -------------------------------------------------------------


def test_a_library_that_calls_its_graph_otherwise_is_named(site):
    """Renamed after it was made: graph options bind by the graph's name."""
    (site.root / "net.onnx").rename(site.root / "other.onnx")
    (site.root / "libnet.so").rename(site.root / "libother.so")
    model = Model(site.root / "other.onnx", encodings=site.root / "net.encodings")
    with pytest.raises(BuildFailed, match=r"other \(libother\.so\)") as caught:
        site.build(model)
    assert "graph_options_unbound" in kinds(caught.value)
    assert "graph_names" in caught.value.next_step
    assert "unable to find graphName:other" in caught.value.log


def test_exit_0_with_nothing_is_an_error(site):
    set_quirks(site.sdk, exit0_nothing=[GENERATOR])
    with pytest.raises(InfrastructureError) as caught:
        site.build()
    assert kinds(caught.value) == {"nothing_produced"}


def test_an_empty_binary_is_nothing(site):
    set_quirks(site.sdk, ["empty_binary"])
    with pytest.raises(InfrastructureError, match=GENERATOR):
        site.build()


def test_a_binary_beside_a_failure_is_no_success(site):
    set_quirks(site.sdk, ["nonzero_exit_with_binary"])
    with pytest.raises(BuildFailed, match="exit 1"):
        site.build()


def test_a_float_library_aborts_on_v68_and_is_explained(site):
    (site.root / "libnet.so").unlink()
    (site.root / "net_net.json").unlink()
    make_model_library(site.root / "net.onnx", site.root)
    with pytest.raises(BuildFailed, match=r"exit 134 \(SIGABRT\)") as caught:
        site.build()
    subjects = {f.subject for f in caught.value.findings if f.kind == "unsupported_op"}
    assert "conv" in subjects
    assert "v68" in str(caught.value)


def test_a_copy_that_is_damaged_on_its_way_back_is_not_taken(site):
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)

    with pytest.raises(InfrastructureError, match="sha256 differs") as caught:
        site.build(host=site.host(damage=flip))
    assert "board rb3" in caught.value.what


def test_a_generator_that_does_not_end_is_stopped_at_the_builds_time_limit(site):
    set_quirks(site.sdk, sleep_s={GENERATOR: 60})
    host = site.host()
    with pytest.raises(InfrastructureError, match="did not end within 1 s") as caught:
        site.build(host=host, seconds=1)
    assert GENERATOR in caught.value.what
    assert 1 in host.limits


@pytest.mark.parametrize(
    ("quirk", "kind"), [("disk_full", "disk_full"), ("missing_libcxx", "library_missing")]
)
def test_a_fault_of_the_board_is_not_the_models(site, quirk, kind):
    set_quirks(site.sdk, [quirk])
    with pytest.raises(InfrastructureError) as caught:
        site.build()
    assert kind in kinds(caught.value)
