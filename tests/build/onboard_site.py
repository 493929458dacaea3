"""A project with a model library, and a board that is this machine with a stand-in generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qairt_project import QCS6490

from pytest_qnnctx.boards.staging import StagingArea
from pytest_qnnctx.build.onboard.toolchain import OnboardToolchain
from pytest_qnnctx.build.toolchain import BuildBoard, BuildProduct, BuildRequest
from pytest_qnnctx.config import Settings
from pytest_qnnctx.hosts.host import Completed, Host
from pytest_qnnctx.hosts.local import LocalHost
from pytest_qnnctx.model import Model, Target

BOARD_MACHINE = "aarch64-oe-linux-gcc11.2"


@dataclass
class Reached:
    """A host behind another; ``path`` is its PATH, ``damage`` is done to every file that is pulled.

    ``limits`` are the time limits of the commands that ran there.
    """

    inner: Host
    path: str
    damage: Callable[[Path], object] = lambda path: None
    limits: list[float] = field(default_factory=list)

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
        self.limits.append(timeout_s)
        there = {"PATH": self.path, **(env or {})}
        return self.inner.execute(argv, timeout_s=timeout_s, env=there, cwd=cwd)

    def push(self, local: Path, remote: str, *, timeout_s: float) -> None:
        self.inner.push(local, remote, timeout_s=timeout_s)

    def pull(self, remote: str, local: Path, *, timeout_s: float) -> None:
        self.inner.pull(remote, local, timeout_s=timeout_s)
        self.damage(local)

    def close(self) -> None:
        self.inner.close()


@dataclass
class Site:
    """A project in ``root`` with the model ``net`` and its library, and a board with ``sdk``."""

    root: Path
    sdk: Path
    said: list[str] = field(default_factory=list)
    opened: int = 0

    @property
    def lib_dir(self) -> str:
        return str(self.sdk / "lib" / BOARD_MACHINE)

    @property
    def model(self) -> Model:
        return Model(self.root / "net.onnx", encodings=self.root / "net.encodings")

    @property
    def toolchain(self) -> OnboardToolchain:
        return OnboardToolchain(Settings(self.root))

    def host(self, inner: Host | None = None, **more: Any) -> Reached:
        tools = self.sdk / "bin" / BOARD_MACHINE
        return Reached(inner or LocalHost("board rb3"), f"{tools}:/usr/bin:/bin", **more)

    def build(
        self,
        model: Model | None = None,
        target: Target = QCS6490,
        *,
        host: Reached | None = None,
        lib_dir: str | None = "",
        seconds: float = 120,
    ) -> BuildProduct:
        """Build on a board with a staging directory of its own."""
        host = host or self.host()
        self.opened += 1
        staging = self.root / f"staging {self.opened}"
        area = StagingArea(host, "rb3", str(staging), str(staging / "work" / "mine"))

        @contextmanager
        def board() -> Iterator[BuildBoard]:
            area.prepare()

            def stage(local: Path, sha256: str) -> str:
                return area.stage(local, sha256, timeout_s=60)

            yield BuildBoard(host, area.workdir, self.lib_dir if lib_dir == "" else lib_dir, stage)
            area.remove()

        work = self.root / f"build {self.opened}"
        work.mkdir()
        request = BuildRequest(model or self.model, target, work, seconds, board)
        return self.toolchain.build(request, self.said.append)
