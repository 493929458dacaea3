"""The toolchain ``qairt`` with its SDK on another machine: this one, behind a Host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest
from qairt_project import V237, Project, make_project, network, samples
from standin_sdk import runs, set_quirks

from pytest_qnnctx.binary.reader import read_binary
from pytest_qnnctx.build.qairt.toolchain import QairtToolchain
from pytest_qnnctx.errors import InfrastructureError, QnnctxError
from pytest_qnnctx.hosts.host import Completed, Host
from pytest_qnnctx.hosts.local import LocalHost
from pytest_qnnctx.hosts.ssh import open_ssh


@dataclass
class FarHost:
    """``inner`` with another home directory; remembers what was copied, and if it is open."""

    inner: Host
    home: Path
    pushed: list[str] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)
    closed: bool = False

    @property
    def name(self) -> str:
        return self.inner.name

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Completed:
        assert not self.closed
        there = {"HOME": str(self.home), **(env or {})}
        return self.inner.execute(argv, timeout_s=timeout_s, env=there, cwd=cwd or str(self.home))

    def push(self, local: Path, remote: str, *, timeout_s: float) -> None:
        self.inner.push(local, remote, timeout_s=timeout_s)
        self.pushed.append(Path(remote).name)

    def pull(self, remote: str, local: Path, *, timeout_s: float) -> None:
        self.inner.pull(remote, local, timeout_s=timeout_s)
        self.pulled.append(Path(remote).name)

    def close(self) -> None:
        self.closed = True
        self.inner.close()


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    for name in ("QNN_SDK_ROOT", "QC_QNN_SDK_ROOT", "QC_BUILD_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return make_project(tmp_path)


@pytest.fixture
def far(project):
    """The hosts that were opened, and a toolchain on ``builder``."""
    home = project.root / "home there"
    home.mkdir()
    hosts: list[FarHost] = []

    def open_host(destination: str) -> FarHost:
        hosts.append(FarHost(LocalHost(f"build host {destination}"), home))
        return hosts[-1]

    settings = project.settings(build_host="builder")
    return QairtToolchain(settings, open_host=open_host), hosts, home


def test_two_builds_at_once_on_another_machine(project, far):
    toolchain, hosts, home = far
    onnx.save(
        network(),
        str(project.root / "net.onnx"),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    model = project.model(calibration=samples())
    local = project.build(model)
    requests = [project.request(model), project.request(model)]
    with ThreadPoolExecutor(2) as pool:
        products = list(pool.map(lambda r: toolchain.build(r, project.said.append), requests))
    for product in products:
        assert product.binary.read_bytes() == local.binary.read_bytes()
        assert product.commands == local.commands
        assert product.encodings == local.encodings
    assert read_binary(local.binary).htp_arch == "v68"
    assert [host.pulled for host in hosts] == [["net.bin"], ["net.bin"]]
    assert all(host.closed for host in hosts)
    assert any("build host builder" in line for line in project.said)
    # The sources stay, for the next build; nothing else does.
    names = sorted(path.name[65:] for path in (home / ".cache/qnnctx/sources").iterdir())
    assert names == ["calibration.tar", "net.encodings", "net.onnx", "weights.bin"]
    assert list((home / ".cache/qnnctx/work").iterdir()) == []


def test_a_build_over_ssh(project, sshd, tmp_path):
    home = tmp_path / "home there"
    home.mkdir()

    def open_host(destination: str) -> FarHost:
        host = open_ssh(destination, name="build host box", config_file=sshd.config_file)
        return FarHost(host, home)

    settings = project.settings(build_host="buildbox")
    toolchain = QairtToolchain(settings, open_host=open_host)
    assert toolchain.identify().version == V237
    product = project.build(project.model(calibration=samples()), toolchain=toolchain)
    assert read_binary(product.binary).htp_arch == "v68"
    assert product.float_ops == ()
    assert list((home / ".cache/qnnctx/work").iterdir()) == []


def test_a_failed_build_leaves_nothing_there_either(project, far):
    toolchain, hosts, home = far
    set_quirks(project.sdk, signal={"qairt-quantizer": 11})
    with pytest.raises(QnnctxError, match="qairt-quantizer"):
        project.build(project.model(), toolchain=toolchain)
    assert list((home / ".cache/qnnctx/work").iterdir()) == []
    assert all(host.closed for host in hosts)


def test_the_build_host_of_the_project_is_used_where_no_option_names_one(project):
    with (project.root / ".qualcomm-env").open("a") as file:
        file.write("QC_BUILD_HOST=buildbox\n")
    asked = []

    def open_host(destination: str) -> FarHost:
        asked.append(destination)
        raise InfrastructureError(f"build host {destination} is not reached")

    toolchain = QairtToolchain(project.settings(), open_host=open_host)
    with pytest.raises(InfrastructureError, match="buildbox"):
        toolchain.identify()
    chosen = QairtToolchain(project.settings(build_host="other"), open_host=open_host)
    with pytest.raises(InfrastructureError, match="other"):
        chosen.identify()
    assert asked == ["buildbox", "other"]


def test_messages_name_the_machine(project, far):
    toolchain, _, _ = far
    project.sdk.rename(project.root / "moved")
    with pytest.raises(InfrastructureError, match="build host builder"):
        toolchain.identify()
    assert not runs(project.sdk)
