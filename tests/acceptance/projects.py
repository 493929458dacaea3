"""Projects for inner pytest sessions that compile and run on the real engine."""

from __future__ import annotations

import importlib
import json
import pkgutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import nets
import pytest

import pytest_qnnctx
from pytest_qnnctx.report.json_report import SCHEMA_FILE

# An inner session in this process forgets the modules that it was the first to import. All of ours
# are imported here, so that no class of them exists twice.
for _module in pkgutil.walk_packages(pytest_qnnctx.__path__, "pytest_qnnctx."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)

#: A toolchain that is the real one, told another target or changed in its product afterwards, as a
#: binary is that was built elsewhere with other options.
ALTERED = """
import dataclasses
from pytest_qnnctx.build.ort_toolchain import OrtToolchain

TARGET, PRODUCT, BYTES = {target!r}, {product!r}, {content!r}
OPTIONS = {options!r}

class Told(OrtToolchain):
    # It records what it was asked, and tells the compiler OPTIONS.
    def _provider_options(self, target):
        return {{**super()._provider_options(target), **OPTIONS}}

class Altered:
    name = "altered"

    def identify(self):
        return dataclasses.replace(OrtToolchain().identify(), name=self.name)

    def options(self, model, target):
        real = OrtToolchain().options(model, target)
        return {{"altered": repr((TARGET, PRODUCT, BYTES, OPTIONS)), **real}}

    def build(self, request, progress):
        target = dataclasses.replace(request.target, **TARGET)
        product = Told().build(dataclasses.replace(request, target=target), progress)
        content = product.binary.read_bytes()
        for old, new in BYTES:
            assert old in content and len(old) == len(new)
            content = content.replace(old, new)
        product.binary.write_bytes(content)
        return dataclasses.replace(product, **PRODUCT)

def pytest_qnnctx_toolchains():
    return [Altered()]
"""

TEST = """
import numpy as np, pytest, sys
sys.path.insert(0, {here!r})
import nets

def dataset():
    return [({{"x": image}}, label) for image, label in nets.images()]

{body}
"""


@dataclass(frozen=True)
class Ran:
    """An inner session: pytest's result and our JSON report."""

    result: pytest.RunResult
    report: dict[str, Any]

    @property
    def text(self) -> str:
        return self.result.stdout.str() + self.result.stderr.str()

    def test(self, index: int = 0) -> dict[str, Any]:
        return self.report["tests"][index]

    def gate(self, name: str, index: int = 0) -> dict[str, Any]:
        (found,) = [gate for gate in self.test(index)["gates"] if gate["gate"] == name]
        return found

    def verdicts(self, index: int = 0) -> dict[str, str]:
        return {gate["gate"]: gate["verdict"] for gate in self.test(index)["gates"]}


class Project:
    """A directory with models and tests, and inner sessions in it."""

    def __init__(self, pytester: pytest.Pytester, cache: Path) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.cache = cache
        pytester.makeini("[pytest]\n")

    def net(self, name: str, model: Any, *, encoded: bool = True, samples: Any = None) -> None:
        """Write a model, with encodings from ``samples`` (default: the classifier's images)."""
        if encoded and samples is None:
            samples = [image for image, _ in nets.images()]
        nets.write(self.path, name, model, samples if encoded else None)

    def altered(
        self,
        target: dict[str, Any] | None = None,
        product: dict[str, Any] | None = None,
        content: tuple[tuple[bytes, bytes], ...] = (),
        options: dict[str, str] | None = None,
    ) -> None:
        """Offer the toolchain ``altered`` in conftest.py."""
        text = ALTERED.format(
            target=target or {}, product=product or {}, content=content, options=options or {}
        )
        self.pytester.makeconftest(text)

    def tests(self, body: str) -> None:
        """Write test_net.py; ``dataset()`` and ``nets`` are there."""
        text = TEST.format(here=str(Path(nets.__file__).parent), body=textwrap.dedent(body))
        (self.path / "test_net.py").write_text(text)

    def run(self, *arguments: str, board: str | None = "sim", apart: bool = False) -> Ran:
        """Run an inner session (``apart``: in a process of its own, as workers need it)."""
        report = self.path / "report.json"
        report.unlink(missing_ok=True)
        run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        # With "=": pytest takes a path that stands alone for one that tells it the root.
        chosen = () if board is None else (f"--board={board}",)
        cache = (f"--qnnctx-cache-dir={self.cache}", f"--qnnctx-json={report}")
        result = run(*chosen, *cache, "-p", "no:cacheprovider", *arguments)
        found = json.loads(report.read_text()) if report.exists() else {}
        if found:
            jsonschema.validate(found, json.loads(SCHEMA_FILE.read_text()))
        return Ran(result, found)

    def judge(self, markers: str, call: str = "acceptance.evaluate(dataset())", **run: Any) -> Ran:
        """Run one test of the model ``net`` with ``markers`` (a line each)."""
        lines = "".join(f"@pytest.mark.{line.strip()}\n" for line in markers.split("\n") if line)
        self.tests(f"{lines}def test_net(acceptance):\n    {call}\n")
        arguments = run.pop("arguments", ())
        return self.run(*arguments, **run)


ENCODED = 'qnn_model("net.onnx", encodings="net.encodings")\n'
FLOAT = 'qnn_model("net.onnx")\n'
