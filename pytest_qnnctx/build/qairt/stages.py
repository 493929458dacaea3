"""The stages of a build with the SDK: convert, quantize, inspect, generate; each kept whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_qnnctx.build.compiled_graph import CompiledGraph, float_ops
from pytest_qnnctx.build.logs.diagnosis import ddr_summaries, diagnose, stage_failure
from pytest_qnnctx.build.qairt.backend_config import (
    EXTENSIONS_LIBRARY,
    CompileOptions,
    graph_name,
    inner_config,
    outer_config,
)
from pytest_qnnctx.build.qairt.dlc_info import DlcGraph, parse_dlc_info
from pytest_qnnctx.build.qairt.flags import CONVERTER, GENERATOR, QUANTIZER, wants_one
from pytest_qnnctx.build.qairt.inputs import FLOAT32, QairtInputs
from pytest_qnnctx.build.qairt.place import Place
from pytest_qnnctx.build.qairt.plan import FlagPlan, calibration_needed, plan_flags
from pytest_qnnctx.build.qairt.sdk import SHIM
from pytest_qnnctx.build.qairt.shell import TOOLS, Command, SdkShell
from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.build.toolchain import Progress
from pytest_qnnctx.errors import BuildFailed, Finding, InfrastructureError
from pytest_qnnctx.model import Model, Target

_QUICK_S = 60.0


def _short(dlc: str) -> str:
    """A DLC's path as it is recorded: both are called alike, in folders of their own."""
    return "/".join(dlc.rsplit("/", 2)[-2:])


@dataclass
class QairtStages:
    """One build's stages at one place. ``runs`` and ``findings`` grow as it goes on."""

    shell: SdkShell
    model: Model
    target: Target
    asked: CompileOptions
    progress: Progress
    runs: list[StageRun] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    graphs: tuple[DlcGraph, ...] = ()
    ddr: tuple[Mapping[str, int], ...] = ()
    inspector: str | None = None

    @property
    def place(self) -> Place:
        """Where they run."""
        return self.shell.place

    def check(self, *, float_fallback: bool) -> FlagPlan:
        """Find the tools and settle every flag, before anything is built."""
        self.inspector = self.shell.find_tools()
        helps = {tool: self.shell.help(tool) for tool in TOOLS}
        plan = plan_flags(helps, self.model, float_fallback=float_fallback)
        self.findings += plan.findings
        return plan

    def build(self, inputs: QairtInputs, plan: FlagPlan, *, bias_bits: str) -> str:
        """All stages; returns the binary's path at the place. Raises as the toolchain does."""
        quantizes = inputs.quantization != FLOAT32
        if quantizes and plan.calibration_missing:
            raise calibration_needed(self.model, self.shell.sdk.version)
        folders = [f"{self.place.workdir}/{name}" for name in ("converted", "quantized", "context")]
        made = self.place.host.execute(["mkdir", "-p", "--", *folders], timeout_s=_QUICK_S)
        if made.returncode:
            raise InfrastructureError(
                f"{self.place.host.name}: cannot make directories in '{self.place.workdir}': "
                f"{made.stderr.strip()[-300:]}",
                next_step="see whether the disk there is full",
            )
        # One base name throughout, in directories of their own: the SDK names the graph after it.
        base = graph_name(self.model.name)
        converted, quantized = (f"{folder}/{base}.dlc" for folder in folders[:2])
        self._convert(inputs, plan, converted)
        dlc = converted
        if quantizes:
            self._quantize(inputs, plan, converted, quantized, bias_bits)
            dlc = quantized
        else:
            self._note(
                "quantizer_skipped",
                f"{self.model.name} has neither encodings nor calibration inputs: it is compiled "
                "in floating point",
            )
        self._inspect(dlc)
        return self._generate(plan, dlc, folders[2], base)

    def _convert(self, inputs: QairtInputs, plan: FlagPlan, converted: str) -> None:
        network = self.place.bring(inputs.network, inputs.beside)
        command = Command(CONVERTER, plan.converter).path("network", network)
        if inputs.overrides is not None:
            command.path("overrides", self.place.bring(inputs.overrides, {}))
        command.path("output", converted, _short(converted))
        self._run(command, converted)

    def _quantize(
        self, inputs: QairtInputs, plan: FlagPlan, source: str, product: str, bias_bits: str
    ) -> None:
        flags = plan.quantizer
        command = Command(QUANTIZER, flags).path("input", source, _short(source))
        command.path("output", product, _short(product))
        if plan.float_fallback:
            command.switch("float_fallback")
        if inputs.calibration is not None:
            self.place.bring_folder(inputs.calibration.folder)
            listed = self.place.write("input_list.txt", inputs.calibration.text())
            weights, activations = inputs.bits
            command.path("calibration", listed)
            command.value("activation_bits", str(activations))
            command.value("weight_bits", str(weights))
            if "per_channel" in flags:
                command.switch("per_channel")
        if "bias_bits" in flags:
            command.value("bias_bits", bias_bits)
        self._run(command, product)

    def _inspect(self, dlc: str) -> None:
        """Read what is in the DLC; that the SDK cannot tell ends nothing."""
        if self.inspector is None:
            return
        argv = [self.inspector, "-i", dlc]
        run = self.shell.run(argv, [self.inspector, "-i", _short(dlc)])
        self.runs.append(run)
        if run.returncode == 0:
            self.graphs = parse_dlc_info(run.log)

    def _generate(self, plan: FlagPlan, dlc: str, folder: str, base: str) -> str:
        sdk, names = self.shell.sdk, tuple(graph.name for graph in self.graphs)
        if names and names != (base,):
            self._note(
                "graph_renamed",
                f"the SDK calls the graph of {base}.dlc {', '.join(names)}; the options for the "
                "compiler are bound to that name",
            )
        inner = self.place.write(
            "htp.json", inner_config(dlc, self.asked, sdk.version, graphs=names)
        )
        outer = self.place.write(
            "backend.json", outer_config(sdk.library(EXTENSIONS_LIBRARY), inner)
        )
        command = (
            Command(GENERATOR, plan.generator)
            .path("model", sdk.library(SHIM))
            .path("backend", sdk.library("libQnnHtp.so"))
            .path("dlc", dlc, _short(dlc))
            .path("folder", folder)
            .value("name", base)
            .path("config", outer)
        )
        product = f"{folder}/{base}.bin"
        doubled = f"{product}.bin"
        run = self._run(command, product, doubled)
        self.ddr = ddr_summaries(run.log)
        if self._is_there(product):
            return product
        self._note(
            "binary_name_doubled", f"{GENERATOR} wrote {base}.bin.bin where {base}.bin was expected"
        )
        return doubled

    def _run(self, command: Command, *products: str) -> StageRun:
        """Run a stage; raise what its diagnosis says where it failed or left nothing."""
        tool = command.argv[0]
        self.progress(f"{tool}: {self.model.name} for {self.target} on {self.place.host.name}")
        run = self.shell.run(command.argv, command.recorded)
        produced = any(self._is_there(product) for product in products)
        run = StageRun(run.stage, run.command, run.returncode, run.log, run.seconds, produced)
        self.runs.append(run)
        findings = diagnose(run, self.target)
        if run.returncode == 0 and produced:
            self.findings += findings
            return run
        if tool == QUANTIZER and run.returncode and wants_one(run.log):
            raise calibration_needed(self.model, self.shell.sdk.version)
        if tool == GENERATOR:
            # First, since they name the cause: the log may have nothing but what follows from it.
            findings = (*self._float_findings(findings), *findings)
        subject = f"{self.model.name} ({self.model.path.name})"
        error = stage_failure(run, findings, subject=subject, target=self.target)
        if isinstance(error, BuildFailed):
            error.log = self.log()
        raise error

    def _float_findings(self, known: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The DLC's own float ops, where the log of a failed generator does not name them."""
        if self.target.has_float is True or any(f.subject in self.float_ops for f in known):
            return ()
        target = self.target
        return tuple(
            Finding(
                "float_op",
                op,
                f"{op} computes in floating point in the quantized DLC, which HTP "
                f"{target.htp_arch} of {target.soc} cannot do",
                "give it an encoding, or calibration= inputs",
            )
            for op in self.float_ops
        )

    @property
    def compiled(self) -> tuple[CompiledGraph, ...]:
        """The graphs that the DLC holds, as far as the SDK tells."""
        return tuple(graph.graph for graph in self.graphs)

    @property
    def float_ops(self) -> tuple[str, ...]:
        """Ops of the DLC that compute in floating point."""
        return float_ops(self.compiled)

    def log(self) -> str:
        """The whole output of all stages so far, with a heading for each."""
        return "".join(
            f"== {run.stage} (exit {run.returncode}, {run.seconds:.1f} s)\n"
            f"{' '.join(run.command)}\n\n{run.log.rstrip()}\n\n"
            for run in self.runs
        )

    def _note(self, kind: str, message: str) -> None:
        self.findings.append(Finding(kind, self.model.name, message))

    def _is_there(self, path: str) -> bool:
        done = self.place.host.execute(["test", "-s", path], timeout_s=_QUICK_S)
        return done.returncode == 0
