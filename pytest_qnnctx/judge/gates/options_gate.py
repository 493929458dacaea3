"""The gate that holds the binary against what was asked of the compiler.

The SDK drops a configuration key that it does not know, and all graph options at once where
``graph_names`` is not the graph's name: exit 0, no word in the log, and a binary that is right in
everything but its speed (a public report: optimization level 0 for 3, 4 MB of VTCM for 16, HVX
threads 0 for 4, and 345 times the traffic to DDR).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_qnnctx.binary.info import BinaryInfo, GraphInfo
from pytest_qnnctx.judge.gates.answer import Answer, listed, mib, not_taken, plural
from pytest_qnnctx.judge.gates.arguments import nothing
from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.verdict import Verdict
from pytest_qnnctx.model import Target
from pytest_qnnctx.parts import find_part

Limits = Mapping[str, Any]

MIB = 2**20
#: What a graph carries whose options were not bound (a public report; 0 HVX threads is what any
#: graph carries that left the number to the compiler, measured with QNN 2.51).
_UNBOUND_LEVEL, _UNBOUND_VTCM_MB, _UNBOUND_HVX = 0, 4, 0


@dataclass(frozen=True)
class _Finding:
    """One option of one graph (of the binary: ``graph`` is empty). ``found`` None is unknown."""

    key: str
    graph: str
    asked: Any
    found: Any
    why: str = ""

    @property
    def differs(self) -> bool:
        return self.found is not None and self.found != self.asked

    @property
    def place(self) -> str:
        return f"{self.key} of graph '{self.graph}'" if self.graph else self.key


class OptionsApplied:
    """The compiler applied every option that it was given; its provenance keeps which.

    A binary without such a record (from elsewhere, or from before there was one) is held against
    the target alone: graphs at the compiler's defaults on a part for which these are wrong.
    """

    name = "options_applied"
    signature = "options_applied"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The artefact with its provenance, and the binary. No board: it runs all the same."""
        return frozenset({Need.ARTIFACT, Need.BINARY})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """A difference fails by key, an option that cannot be read back is inconclusive."""
        answer = Answer(self.name, 0, "options")
        artifact, binary = measurements.artifact, measurements.binary
        if artifact is None:
            return answer.unknown(not_taken(measurements, Need.ARTIFACT, "binary"))
        if binary is None:
            return answer.unknown(not_taken(measurements, Need.BINARY, "binary"))
        record = artifact.provenance.asked if artifact.provenance is not None else {}
        asked = {key: value for key, value in record.items() if value is not None}
        if not asked:
            return _without_record(answer, binary, measurements.target)
        findings = [
            finding
            for key, value in asked.items()
            for finding in _compare(key, value, binary, measurements.target)
        ]
        details: dict[str, Any] = {
            "asked": asked,
            "found": _found(findings),
            "compiled": _compiled(binary),
        }
        differing = [finding for finding in findings if finding.differs]
        if differing:
            told = [f"{f.place}: asked {f.asked}, found {f.found}" for f in differing]
            cause = _cause(differing, binary)
            return answer.fails(
                len({f.key for f in differing}), f"{listed(told, 6)}; {cause}", **details
            )
        unread = [f"{f.place} ({f.why})" for f in findings if f.found is None]
        if unread:
            return answer.unknown(f"cannot be read back: {listed(unread)}", **details)
        return answer.passes(
            0, f"the binary has all that was asked: {listed(_told(asked), 6)}", **details
        )


def _without_record(answer: Answer, binary: BinaryInfo, target: Target) -> Verdict:
    details: dict[str, Any] = {"asked": {}, "compiled": _compiled(binary)}
    nothing_known = "what was asked of the compiler is not recorded"
    if not binary.graphs:
        why = binary.unknown.get("graphs", "it lists no graph")
        return answer.unknown(f"{nothing_known}, and the binary does not say ({why})", **details)
    unread = [g.name for g in binary.graphs if g.optimization_level is None]
    if unread:
        why = _why(binary, "optimization_level")
        return answer.unknown(
            f"{nothing_known}, and the options of {listed(unread)} are unknown ({why})", **details
        )
    unbound = [graph.name for graph in binary.graphs if _is_unbound(graph)]
    if unbound and target.vtcm_mb != _UNBOUND_VTCM_MB:
        told = f"{_quoted(unbound)} has the defaults (optimization level 0, 4 MiB of VTCM)"
        if target.vtcm_mb is None:
            return answer.unknown(
                f"{nothing_known}; {told}, and how much VTCM {target.soc} has is unknown", **details
            )
        return answer.fails(
            len(unbound),
            f"graph options did not bind: {told}, {target.soc} has {target.vtcm_mb} MiB: {_BIND}",
            **details,
        )
    levels = listed(dict.fromkeys(_graph_text(graph) for graph in binary.graphs))
    return answer.passes(0, f"{nothing_known}; the binary says {levels}", **details)


_BIND = "write the graph's name into graph_names, and build it again"


def _compare(key: str, asked: Any, binary: BinaryInfo, target: Target) -> list[_Finding]:
    if key == "htp_arch":
        why = binary.unknown.get(key, "the binary does not say")
        return [_Finding(key, "", str(asked).lower(), _lower(binary.htp_arch), why)]
    if key == "soc_model":
        return [_soc_model(asked, binary, target)]
    read = _GRAPH_OPTIONS.get(key)
    if read is None:
        return [_Finding(key, "", asked, None, "no binary tells it")]
    if not binary.graphs:
        return [_Finding(key, "", asked, None, binary.unknown.get("graphs", "no graph is listed"))]
    if key == "vtcm_mb" and asked == 0:  # "all that the device has"
        if target.vtcm_mb is None:
            return [_Finding(key, "", 0, None, f"how much {target.soc} has is unknown")]
        asked = target.vtcm_mb
    field, value = read
    return [
        _Finding(key, graph.name, asked, value(graph, binary), _why(binary, field))
        for graph in binary.graphs
    ]


def _soc_model(asked: Any, binary: BinaryInfo, target: Target) -> _Finding:
    soc = binary.soc
    if soc is None:
        why = binary.unknown.get("soc", "the binary names no SoC")
        return _Finding("soc_model", "", asked, None, why)
    if asked == target.soc_model and soc.upper() == target.soc.upper():
        return _Finding("soc_model", "", asked, asked)
    part = find_part(soc)
    if part is None:
        return _Finding("soc_model", "", asked, None, f"the number of {soc} is unknown")
    return _Finding("soc_model", "", asked, part.soc_model)


def _vtcm_mb(graph: GraphInfo, binary: BinaryInfo) -> float | int | None:
    """In MiB. The graph's own value, which the option sets; else that of the whole file."""
    size = graph.vtcm_bytes if graph.vtcm_bytes is not None else binary.compiled_vtcm_bytes
    if size is None:
        return None
    return size // MIB if size % MIB == 0 else size / MIB


_GRAPH_OPTIONS: Mapping[str, tuple[str, Callable[[GraphInfo, BinaryInfo], Any]]] = {
    "vtcm_mb": ("vtcm_bytes", _vtcm_mb),
    "optimization_level": ("optimization_level", lambda graph, _: graph.optimization_level),
    "hvx_threads": ("hvx_threads", lambda graph, _: graph.hvx_threads),
}


def _cause(differing: list[_Finding], binary: BinaryInfo) -> str:
    names = {finding.graph for finding in differing if finding.graph}
    unbound = [graph.name for graph in binary.graphs if graph.name in names and _is_unbound(graph)]
    if unbound:
        return (
            f"all graph options are at their defaults, so graph_names does not match: the binary's "
            f"graph is called {_quoted(unbound)}: {_BIND}"
        )
    keys = listed(dict.fromkeys(finding.key for finding in differing))
    return (
        f"the compiler ignored {keys}: the key is another one in this version of the SDK, or the "
        f"part cannot have that value"
    )


def _is_unbound(graph: GraphInfo) -> bool:
    """Whether ``graph`` carries the defaults of one whose options were not bound to it."""
    return (
        graph.optimization_level == _UNBOUND_LEVEL
        and graph.vtcm_bytes in (None, _UNBOUND_VTCM_MB * MIB)
        and graph.hvx_threads in (None, _UNBOUND_HVX)
    )


def _graph_text(graph: GraphInfo) -> str:
    vtcm = "unknown VTCM" if graph.vtcm_bytes is None else f"{mib(graph.vtcm_bytes)} of VTCM"
    threads = {None: "unknown HVX threads", 0: "the compiler's own number of HVX threads"}.get(
        graph.hvx_threads, plural(graph.hvx_threads or 0, "HVX thread")
    )
    return f"optimization level {graph.optimization_level}, {vtcm}, {threads}"


def _found(findings: list[_Finding]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for finding in findings:
        if finding.graph:
            found.setdefault(finding.key, {})[finding.graph] = finding.found
        else:
            found[finding.key] = finding.found
    return found


def _compiled(binary: BinaryInfo) -> dict[str, Any]:
    """What the binary says, for the details."""
    return {
        "htp_arch": binary.htp_arch,
        "soc": binary.soc,
        "compiled_vtcm_bytes": binary.compiled_vtcm_bytes,
        "graphs": {
            graph.name: {
                "optimization_level": graph.optimization_level,
                "vtcm_bytes": graph.vtcm_bytes,
                "hvx_threads": graph.hvx_threads,
            }
            for graph in binary.graphs
        },
    }


def _why(binary: BinaryInfo, field: str) -> str:
    reasons = (why for key, why in binary.unknown.items() if key.endswith(field))
    return next(reasons, "the binary does not say")


def _told(asked: Mapping[str, Any]) -> list[str]:
    return [f"{key} {value}" for key, value in asked.items()]


def _quoted(names: list[str]) -> str:
    return listed([f"'{name}'" for name in names])


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()
