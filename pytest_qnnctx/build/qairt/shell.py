"""The SDK's tools at work: found in its environment, asked for their flags, and run."""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import PurePosixPath

from pytest_qnnctx.build.logs.diagnosis import last_useful_lines
from pytest_qnnctx.build.qairt.flags import CONVERTER, GENERATOR, QUANTIZER, ToolHelp
from pytest_qnnctx.build.qairt.place import Deadline, Place
from pytest_qnnctx.build.qairt.script import tool_script, which_script
from pytest_qnnctx.build.qairt.sdk import Sdk
from pytest_qnnctx.build.stage import StageRun
from pytest_qnnctx.errors import Finding, InfrastructureError

TOOLS = (CONVERTER, QUANTIZER, GENERATOR)
#: Prints what is in a DLC; the second name is the older one. Builds go on without it.
INSPECTORS = ("qairt-dlc-info", "snpe-dlc-info")
_ORDER = "envsetup.sh sourced with sh, or an eSDK environment sourced after it / PATH reset"


class SdkShell:
    """Runs the tools of ``sdk`` at ``place``. ``helps`` keeps what their help says."""

    def __init__(
        self, sdk: Sdk, place: Place, deadline: Deadline, helps: MutableMapping[str, ToolHelp]
    ) -> None:
        self.sdk, self.place, self._deadline, self._helps = sdk, place, deadline, helps

    def find_tools(self) -> str | None:
        """Check that the three tools are found; returns the name of the DLC inspector, if any.

        Raises InfrastructureError (finding ``tool_missing``) that tells whether the SDK lacks
        the tool or its environment hides it.
        """
        script = which_script(self.sdk.root, self.place.workdir, (*TOOLS, *INSPECTORS))
        path = self.place.write("find-tools.sh", script)
        done = self.place.host.execute(["bash", path], timeout_s=self._deadline.left())
        lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
        found = {line[1] for line in lines if line[0] == "found" and len(line) == 3}
        there = {line[1] for line in lines if line[0] == "there" and len(line) == 2}
        setup = [" ".join(line[1:]) for line in lines if line[0] == "setup"]
        for tool in TOOLS:
            if tool not in found:
                raise self._not_found(tool, tool in there, done.returncode, setup, done.stderr)
        return next((tool for tool in INSPECTORS if tool in found), None)

    def _not_found(
        self, tool: str, there: bool, returncode: int, setup: Sequence[str], errors: str
    ) -> InfrastructureError:
        sdk = self.sdk
        message = (
            f"{tool} is not found on {sdk.host} after sourcing '{sdk.root}/bin/envsetup.sh' "
            "with bash"
        )
        if there or returncode:
            message += f"; the usual cause: {_ORDER}"
            step = "source nothing after envsetup.sh, and see what it prints: bash, then source it"
        else:
            message += ", and the SDK has no such file"
            step = "install the whole SDK"
        said = [line for line in (*setup, *errors.splitlines()) if line.strip()]
        if said:
            message += "; envsetup.sh said: " + " / ".join(line[:200] for line in said[-3:])
        return InfrastructureError(
            message, next_step=step, findings=[Finding("tool_missing", tool, message)]
        )

    def help(self, tool: str) -> ToolHelp:
        """What ``tool --help`` prints. Raises InfrastructureError where it does not even run."""
        if tool not in self._helps:
            run = self.run([tool, "--help"], (tool, "--help"))
            shown = ToolHelp(tool, self.sdk.version, run.log)
            if not shown.flags or run.returncode > 1:
                said = " / ".join(last_useful_lines(run.log, 3)) or "it printed nothing"
                raise InfrastructureError(
                    f"{tool} of QAIRT {self.sdk.version} does not run on {self.sdk.host} "
                    f"(`--help` ended with exit {run.returncode}): {said}",
                    next_step="run the SDK's bin/check-linux-dependency.sh and "
                    "bin/check-python-dependency there",
                )
            self._helps[tool] = shown
        return self._helps[tool]

    def run(self, argv: Sequence[str], recorded: Sequence[str]) -> StageRun:
        """Run one tool to its end, whatever that is; ``recorded`` is kept as its command.

        Raises InfrastructureError where the host fails or the build's time is over.
        """
        tool = PurePosixPath(argv[0]).name
        script = tool_script(self.sdk.root, self.place.workdir, argv)
        path = self.place.write(f"run-{tool}.sh", script)
        started = time.monotonic()
        try:
            done = self.place.host.execute(["bash", path], timeout_s=self._deadline.left())
        except InfrastructureError as error:
            raise InfrastructureError(
                f"{tool} was stopped: {error.what}",
                next_step=error.next_step,
                findings=error.findings,
            ) from error
        seconds = round(time.monotonic() - started, 3)
        return StageRun(tool, tuple(recorded), done.returncode, done.stdout + done.stderr, seconds)


class Command:
    """A command line that is built flag by flag: as it runs, and as it is recorded.

    Recorded are file names alone, since the directories are gone when they are read.
    """

    def __init__(self, tool: str, flags: Mapping[str, str]) -> None:
        self._flags = flags
        self.argv: list[str] = [tool]
        self.recorded: list[str] = [tool]

    def path(self, meaning: str, path: str, shown: str = "") -> Command:
        """Add a flag whose value is a path; ``shown`` is recorded instead of its last part."""
        return self._add(meaning, path, shown or PurePosixPath(path).name)

    def value(self, meaning: str, value: str) -> Command:
        """Add a flag with another value."""
        return self._add(meaning, value, value)

    def switch(self, meaning: str) -> Command:
        """Add a flag without a value."""
        self.argv.append(self._flags[meaning])
        self.recorded.append(self._flags[meaning])
        return self

    def _add(self, meaning: str, value: str, shown: str) -> Command:
        self.argv += [self._flags[meaning], value]
        self.recorded += [self._flags[meaning], shown]
        return self
