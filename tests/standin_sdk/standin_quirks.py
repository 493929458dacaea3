"""What can be wrong with a stand-in SDK: a table of names, each with its source in our own words.

They are read from ``quirks.json`` in the SDK's root at every run, so that a test can change them
after the SDK was made. A value is ``true``, or what the table says; one that speaks of tools takes
``true`` (all of them) or a list of tool names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

QUIRKS_FILE = "quirks.json"

#: name -> what it does, and where that was seen.
QUIRKS: dict[str, str] = {
    # envsetup.sh
    "cd": "envsetup.sh leaves the shell in another directory (a practitioner's guide, 2.37)",
    "envsetup_appends": "it puts the SDK's libraries behind an LD_LIBRARY_PATH that was set, which "
    "is why the guide unsets it first",
    "envsetup_fails": "it prints an error and returns 1",
    "envsetup_exits": "it ends the shell that sources it",
    "envsetup_leaves_path": "PATH does not get the tools: what is left after an eSDK's environment "
    "was sourced later (the same guide)",
    # any tool: true, or a list of tools
    "disk_full": "the disk is full (general form of the operating system's message)",
    "licence": "no licence (general form; no public sample)",
    "exit0_nothing": "ends well and writes nothing, without a word (the guide's row)",
    "not_executable": "exit 126: a shell's words for a program of another machine",
    "missing_libcxx": "libc++.so.1 is not on the host (public report executorch#10895)",
    "signal": "{tool: number}: the tool ends by that signal after its first lines (MNN#4437: a "
    "segmentation fault without an error line; 9 is what the kernel does for lack of memory)",
    "sleep_s": "{tool: seconds}: the tool takes that long before it works",
    # qairt-converter
    "converter_exits_early": "stops in the middle, without an error and without output; a script "
    "that went on was the report (ai-hub-models#98)",
    "converter_copy_error": "external data could not be copied to the temporary directory (a "
    "vendor's troubleshooting page)",
    "converter_crash": "a stack trace of the converter's own, exit 1",
    "skips_silently": "no line for encodings whose tensor is not there: only the count says it "
    "(public notes on 2.48: 'Processed 0 quantization encodings', and no error)",
    # qairt-quantizer
    "drop_encodings": "list of tensors whose encodings are lost without a word; they stay float "
    "(the guide's 'silent failure'; aimet#2444)",
    "recompute_encodings": "list of tensors that get ranges of the quantizer's own although the "
    "encodings name them (aimet#2444: quantisation still happens beside the overrides)",
    "fallback_lines": "the quantizer names the ops that it leaves float; elsewhere it is silent",
    # qnn-context-binary-generator
    "soc_key": "the one name of the SoC's key in `devices` that is read; another is ignored",
    "graphs_form": "'list' or 'object': the form of `graphs` that is read; another is ignored",
    "ignores_keys": "list of keys of the graph block that are ignored without a word (2.48 report: "
    "unknown sections and keys make no error and no warning)",
    "ignore_vtcm_mb": "the same for vtcm_mb alone: the compiler's default of 4 MB holds (a report "
    "of 327 ms against 64 ms)",
    "ignores_graphs": "the whole graph block is not used, as where graph_names does not match: "
    "O 0, VTCM 4 MB, HVX threads 0, exit 0 (public report, 345 times the spill)",
    "unknown_key_warning": "prints 'Unknown Key' for keys that it does not know, and goes on "
    "(qai-appbuilder)",
    "invalid_key_error": "prints 'Invalid key' at level ERROR and goes on (executorch#1430)",
    "graph_name": "the DLC's graph is called this, whatever its file is called",
    "wrong_arch": "'v73': compiles for this architecture, whatever was asked",
    "op_too_big": "an op needs more TCM than there is; finalize fails with 1002 (executorch#1430)",
    "memory_too_large": "serialising fails: allocation over the limit (ai-hub-models#274)",
    "unsupported_op": "true or a node's name: op validation 3110, exit 14 (ai-hub-models#280)",
    "no_ddr_block": "prints no DDR summary (not every build does)",
    "empty_binary": "leaves a file of 0 bytes and ends well (qai-appbuilder skill: shared output "
    "directory)",
    "truncated_binary": "leaves half the file and ends well (a full disk noticed by nobody)",
    "nonzero_exit_with_binary": "writes the binary and ends with 1 (qai-appbuilder, Windows)",
}


def known_quirks() -> frozenset[str]:
    """All names."""
    return frozenset(QUIRKS)


class Quirks:
    """The quirks of one SDK as they are now."""

    def __init__(self, root: Path) -> None:
        path = root / QUIRKS_FILE
        self._values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name: str) -> Any:
        """Its value; None where it is off."""
        assert name in QUIRKS, name
        return self._values.get(name) or None

    def on(self, name: str, tool: str = "") -> bool:
        """Whether it is on, for ``tool`` where its value is a list of tools."""
        value = self.get(name)
        if isinstance(value, list) and tool:
            return tool in value
        return bool(value)

    def of(self, name: str, tool: str) -> Any:
        """The value for ``tool`` of one that maps tools to values."""
        value = self.get(name)
        return value.get(tool) if isinstance(value, dict) else None
