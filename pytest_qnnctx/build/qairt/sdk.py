"""The QAIRT SDK on a host: where it is, which version, and what it can build for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_qnnctx.build.qairt.flags import GENERATOR
from pytest_qnnctx.build.qairt.script import LOOK_SCRIPT, tool_script
from pytest_qnnctx.build.qairt.version import version_from_text, version_from_yaml
from pytest_qnnctx.errors import Finding, InfrastructureError
from pytest_qnnctx.hosts.host import Host
from pytest_qnnctx.model import Target

#: The SDK's generic shim through which the generator reads a DLC.
SHIM = "libQnnModelDlc.so"
HOST_LIBRARIES = "lib/x86_64-linux-clang"

_LOOK_S = 60.0
_CONFIGURE = (
    "set QC_QNN_SDK_ROOT in .qualcomm-env (or QNN_SDK_ROOT in the environment) to the SDK's "
    "directory, such as /opt/qcom/aistack/qairt/<version>"
)


@dataclass(frozen=True)
class Sdk:
    """An SDK at ``root`` on the host called ``host``, whose user's home directory is ``home``.

    ``version_from`` says what told ``version``: "sdk.yaml", "the directory's name" or a tool.
    ``archs`` are those of ``lib/hexagon-*``; ``libraries`` the host libraries that are there.
    """

    root: str
    host: str
    version: str
    version_from: str
    home: str
    archs: tuple[str, ...] = ()
    libraries: frozenset[str] = frozenset()

    def library(self, name: str) -> str:
        """The absolute path of a host library: the generator does not look a bare name up."""
        return f"{self.root}/{HOST_LIBRARIES}/{name}"

    def check_target(self, target: Target) -> None:
        """Raises InfrastructureError where this SDK cannot build for ``target``."""
        if target.htp_arch not in self.archs:
            there = ", ".join(sorted(self.archs)) or "none"
            message = (
                f"QAIRT {self.version} at '{self.root}' on {self.host} has no "
                f"lib/hexagon-{target.htp_arch}: it cannot build for {target} (it has: {there})"
            )
            raise InfrastructureError(
                message,
                next_step=f"install the SDK with Hexagon {target.htp_arch}, or correct the "
                "board's htp_arch",
                findings=[Finding("hexagon_missing", target.htp_arch, message)],
            )
        for name in (SHIM, "libQnnHtp.so"):
            if name not in self.libraries:
                message = (
                    f"QAIRT {self.version} at '{self.root}' on {self.host} has no "
                    f"{HOST_LIBRARIES}/{name}"
                )
                kind = "shim_missing" if name == SHIM else "backend_missing"
                raise InfrastructureError(
                    message,
                    next_step="install the whole SDK: the generator reads a DLC through this file"
                    if name == SHIM
                    else "install the whole SDK",
                    findings=[Finding(kind, name, message)],
                )


def find_sdk(host: Host, configured: str | None, *, remote: bool, origin: str = "") -> Sdk:
    """The SDK at ``configured`` on ``host``, or else the only one at the usual place.

    ``origin`` says where ``configured`` was set.

    Raises InfrastructureError where there is none, several, or one that cannot be used, with what
    to do.
    """
    root = configured.rstrip("/") if configured else _only_candidate(host, remote)
    facts = _look(host, [root])
    set_by = f" ({origin})" if origin else ""
    if not facts.has("directory"):
        raise InfrastructureError(
            f"{host.name}: the SDK's directory '{root}'{set_by} does not exist",
            next_step=_CONFIGURE,
        )
    if not facts.has("envsetup"):
        raise InfrastructureError(
            f"{host.name}: '{root}'{set_by} is not a QAIRT SDK: it has no bin/envsetup.sh",
            next_step=_CONFIGURE,
        )
    version, origin = _version(host, root, facts)
    return Sdk(
        root=root,
        host=host.name,
        version=version,
        version_from=origin,
        home=facts.first("home"),
        archs=tuple(facts.all("arch")),
        libraries=frozenset(facts.all("library")),
    )


def _only_candidate(host: Host, remote: bool) -> str:
    found = list(dict.fromkeys(_look(host, []).all("candidate")))
    if len(found) == 1:
        return found[0]
    if found:
        raise InfrastructureError(
            f"{host.name} has {len(found)} SDKs, and none is chosen: {', '.join(found)}",
            next_step=_CONFIGURE,
        )
    where = "" if remote else "; with the SDK on another machine, set QC_BUILD_HOST as well"
    raise InfrastructureError(
        f"no QAIRT SDK is configured, and {host.name} has none in /opt/qcom/aistack/qairt",
        next_step=_CONFIGURE + where,
    )


@dataclass(frozen=True)
class _Facts:
    lines: tuple[tuple[str, str], ...]

    def all(self, key: str) -> list[str]:
        return [value for name, value in self.lines if name == key]

    def first(self, key: str) -> str:
        return next(iter(self.all(key)), "")

    def has(self, key: str) -> bool:
        return bool(self.all(key))


def _facts(text: str) -> _Facts:
    pairs = (line.partition(" ") for line in text.splitlines())
    return _Facts(tuple((key, value) for key, _, value in pairs))


def _look(host: Host, arguments: Sequence[str]) -> _Facts:
    done = host.execute(["bash", "-c", LOOK_SCRIPT, "look", *arguments], timeout_s=_LOOK_S)
    facts = _facts(done.stdout)
    if done.returncode or not facts.has("system"):
        said = (done.stderr or done.stdout).strip()[-300:]
        raise InfrastructureError(
            f"{host.name}: cannot look for the SDK with bash: {said or f'exit {done.returncode}'}",
            next_step="the SDK's tools need Linux with bash; name such a machine in QC_BUILD_HOST",
        )
    system = facts.first("system")
    if system != "Linux x86_64":
        raise InfrastructureError(
            f"{host.name} is {system}; the SDK's converters run on x86-64 Linux only",
            next_step="name a machine with the SDK in QC_BUILD_HOST or --qnnctx-build-host",
        )
    return facts


def _version(host: Host, root: str, facts: _Facts) -> tuple[str, str]:
    if version := version_from_yaml(facts.all("yaml")):
        return version, "sdk.yaml"
    if version := version_from_text(root.rsplit("/", 1)[-1]):
        return version, "the directory's name"
    script = tool_script(root, "/", [GENERATOR, "--version"])
    shown = host.execute(["bash", "-c", script], timeout_s=_LOOK_S)
    if version := version_from_text(shown.stdout):
        return version, f"{GENERATOR} --version"
    raise InfrastructureError(
        f"{host.name}: neither sdk.yaml nor the directory's name nor {GENERATOR} tells which "
        f"version of QAIRT '{root}' is",
        next_step="install the SDK as it comes, with its sdk.yaml",
    )
