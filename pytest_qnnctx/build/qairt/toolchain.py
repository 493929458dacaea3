"""Toolchain ``qairt``: Qualcomm's SDK, on this machine or on a build host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pytest_qnnctx.build.encodings_check import encodings_use
from pytest_qnnctx.build.qairt.backend_config import compile_options
from pytest_qnnctx.build.qairt.dlc_info import like_expected
from pytest_qnnctx.build.qairt.flags import ToolHelp
from pytest_qnnctx.build.qairt.inputs import QairtInputs, gather_inputs
from pytest_qnnctx.build.qairt.place import Deadline, LocalPlace, Place, RemotePlace
from pytest_qnnctx.build.qairt.sdk import Sdk, find_sdk
from pytest_qnnctx.build.qairt.shell import SdkShell
from pytest_qnnctx.build.qairt.stages import QairtStages
from pytest_qnnctx.build.quantize.prepare import kept_model
from pytest_qnnctx.build.toolchain import BuildProduct, BuildRequest, Progress, ToolchainId
from pytest_qnnctx.config import Settings
from pytest_qnnctx.errors import Finding, InfrastructureError
from pytest_qnnctx.hosts.host import Host
from pytest_qnnctx.hosts.local import LocalHost
from pytest_qnnctx.model import EncodingsUse, Model, Target

#: Opens the build host of that name (an SSH alias or user@host).
OpenHost = Callable[[str], Host]
_BIAS_BITS = "32"


def open_build_host(destination: str) -> Host:
    """The build host over SSH. Raises InfrastructureError where it cannot be reached."""
    from pytest_qnnctx.hosts.ssh import open_ssh

    return open_ssh(
        destination,
        name=f"build host {destination}",
        lost_in_push="see whether it is still up, look at the network between, and build again",
    )


class QairtToolchain:
    """``qairt-converter``, ``qairt-quantizer`` and ``qnn-context-binary-generator`` in turn.

    The SDK is that of ``QNN_SDK_ROOT`` or ``QC_QNN_SDK_ROOT``, on ``--qnnctx-build-host`` or
    ``QC_BUILD_HOST`` where one is named. Nothing is left in float unless ``settings`` opt in.
    """

    name = "qairt"

    def __init__(self, settings: Settings, *, open_host: OpenHost = open_build_host) -> None:
        self._settings, self._open_host = settings, open_host
        self._sdk: Sdk | None = None
        self._helps: dict[str, ToolHelp] = {}

    def sdk(self) -> Sdk:
        """The SDK; looked up once.

        Raises UsageError for a broken configuration, InfrastructureError where no SDK is found, the
        build host is not reached, or it cannot run the SDK.
        """
        if self._sdk is None:
            with self._host() as (host, remote):
                self._sdk = self._find(host, remote)
        return self._sdk

    def identify(self) -> ToolchainId:
        """The SDK's version. Raises as :meth:`sdk` does."""
        version = self.sdk().version
        return ToolchainId(self.name, version, version)

    def options(self, model: Model, target: Target) -> Mapping[str, str]:
        """Everything that is asked of the three tools beside the model."""
        options = {key: str(value) for key, value in compile_options(target).asked().items()}
        options["float_fallback"] = "yes" if self._settings.float_fallback else "no"
        options["bias_bits"] = _BIAS_BITS
        if model.calibration is not None:
            options["per_channel"] = "yes"
        if model.input_shapes:
            from importlib.metadata import version

            options["onnx"] = version("onnx")  # it fixes the shapes
        return options

    def build(self, request: BuildRequest, progress: Progress) -> BuildProduct:
        """Check model and SDK, convert, quantize, inspect, generate, and fetch the binary.

        Raises BuildFailed where the SDK refuses the model, ProductFailure where encodings and
        model do not fit, InfrastructureError where the SDK or its host is not as it must be,
        UsageError where this version needs calibration inputs or the float fallback.
        """
        try:
            return self._build(request, progress)
        except OSError as error:  # our own files in the build's directory
            raise InfrastructureError(
                f"building {request.model.name} in '{request.workdir}': {error.strerror or error}",
                next_step="free some space, or choose another directory with --qnnctx-cache-dir",
            ) from error

    def _build(self, request: BuildRequest, progress: Progress) -> BuildProduct:
        model, target, work = request.model, request.target, request.workdir
        asked = compile_options(target)
        deadline = Deadline(request.time_limit_s, f"building {model.name} for {target}")
        with self._host() as (host, remote):
            sdk = self._sdk = self._sdk or self._find(host, remote)
            sdk.check_target(target)
            progress(f"QAIRT {sdk.version} ({sdk.version_from}) at {sdk.root} on {host.name}")
            with _place(host, sdk, work, deadline, remote) as place:
                shell = SdkShell(sdk, place, deadline, self._helps)
                stages = QairtStages(shell, model, target, asked, progress)
                plan = stages.check(float_fallback=self._settings.float_fallback)
                inputs = gather_inputs(model, target, work, progress)
                binary = stages.build(inputs, plan, bias_bits=_BIAS_BITS)
                fetched = place.fetch(binary, work / f"{model.path.stem}.context")
        return _product(request, sdk, inputs, stages, fetched)

    def _find(self, host: Host, remote: bool) -> Sdk:
        from pytest_qnnctx.qualcomm_env import load_qualcomm_env

        env, key = load_qualcomm_env(self._settings.root), "QC_QNN_SDK_ROOT"
        origin = env.origins.get(key, "")
        return find_sdk(host, env.get(key) or None, remote=remote, origin=origin)

    @contextmanager
    def _host(self) -> Iterator[tuple[Host, bool]]:
        """The machine with the SDK, for as long as it is needed, and whether it is another one."""
        from pytest_qnnctx.qualcomm_env import load_qualcomm_env

        destination = self._settings.build_host
        destination = destination or load_qualcomm_env(self._settings.root).get("QC_BUILD_HOST")
        host = self._open_host(destination) if destination else LocalHost("this machine")
        try:
            yield host, bool(destination)
        finally:
            host.close()


@contextmanager
def _place(host: Host, sdk: Sdk, work: Path, deadline: Deadline, remote: bool) -> Iterator[Place]:
    place = RemotePlace(host, sdk.home, work, deadline) if remote else LocalPlace(host, work)
    try:
        yield place
    finally:
        place.close()


def _product(
    request: BuildRequest, sdk: Sdk, inputs: QairtInputs, stages: QairtStages, binary: Path
) -> BuildProduct:
    work = request.workdir
    log = work / "build.log"
    log.write_text(stages.log())
    files = {"log": log}
    if inputs.prepared is not None and (kept := kept_model(inputs.prepared, work)):
        files["quantized_model"] = kept
    findings = [*inputs.findings, *stages.findings]
    if sdk.version_from != "sdk.yaml":
        message = f"the SDK's version {sdk.version} is known from {sdk.version_from} alone"
        findings.append(Finding("sdk_version_unsure", sdk.version, message))
    floats = _float_ops(request.target, stages, findings)
    return BuildProduct(
        binary=binary,
        quantization=inputs.quantization,
        commands=tuple(run.command for run in stages.runs),
        float_ops=floats,
        host_ops=(),  # the HTP backend takes the whole graph into a context, or none of it
        encodings=_encodings(inputs, stages),
        asked=stages.asked.asked(),
        findings=tuple(findings),
        ddr=stages.ddr,
        files=files,
    )


def _float_ops(
    target: Target, stages: QairtStages, findings: list[Finding]
) -> tuple[str, ...] | None:
    if stages.compiled:
        return stages.float_ops
    if target.has_float is not False:
        return None
    message = (
        f"what is in the DLC could not be read; HTP {target.htp_arch} of {target.soc} has no "
        "floating point, and the generator compiled every op, so that none is in float"
    )
    findings.append(Finding("dlc_not_read", stages.model.name, message))
    return ()


def _encodings(inputs: QairtInputs, stages: QairtStages) -> EncodingsUse | None:
    prepared = inputs.prepared
    if prepared is None:
        return None
    return encodings_use(prepared, like_expected(stages.compiled, prepared.expected))
