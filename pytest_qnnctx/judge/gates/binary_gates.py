"""Gates on the binary's size and on the memory that it was compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_qnnctx.binary.info import BinaryInfo
from pytest_qnnctx.judge.gates.answer import Answer, listed, mib, not_taken
from pytest_qnnctx.judge.gates.arguments import bound, nothing, number
from pytest_qnnctx.judge.measurements import Measurements, Need
from pytest_qnnctx.judge.verdict import Verdict

MIB = 2**20
Limits = Mapping[str, Any]


class SpillZero:
    """No graph spills to DDR, in no more VTCM than the part has.

    Spill 0 alone proves nothing: compiled with ``vtcm_mb=4``, a binary for QCS6490 shows spill 0
    and does not fit that part's 2 MiB (measured).
    """

    name = "spill_zero"
    signature = "spill_zero"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """No arguments."""
        return nothing(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The binary."""
        return frozenset({Need.BINARY})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """Sum the graphs' spill/fill buffers, then compare the VTCM with the part's."""
        answer = Answer(self.name, 0, "bytes")
        binary, target = measurements.binary, measurements.target
        if binary is None:
            return answer.unknown(not_taken(measurements, Need.BINARY, "binary"))
        if not binary.graphs:
            return answer.unknown(binary.unknown.get("graphs", "the binary lists no graph"))
        spills = {graph.name: graph.spill_fill_bytes for graph in binary.graphs}
        known = [spill for spill in spills.values() if spill is not None]
        total = sum(known)
        vtcm, note = compiled_vtcm(binary)
        details: dict[str, Any] = {
            "spill_fill_bytes": spills,
            "compiled_vtcm_bytes": vtcm,
            "part_vtcm_mb": target.vtcm_mb,
        }
        if note:
            details["note"] = note
        if total > 0 or any(spill < 0 for spill in known):
            graphs = [name for name, spill in spills.items() if spill]
            more = "" if len(binary.graphs) == 1 else f" ({listed(graphs)})"
            inside = "unknown VTCM" if vtcm is None else f"{mib(vtcm)} of VTCM"
            return answer.fails(
                total, f"{total} bytes ({mib(total)}) spill to DDR{more} in {inside}", **details
            )
        unread = [name for name, spill in spills.items() if spill is None]
        if unread:
            why = _unknown(binary, "spill_fill_bytes") or "the binary does not say"
            return answer.unknown(f"spill of {listed(unread)} unknown: {why}", **details)
        if vtcm is None:
            why = _unknown(binary, "vtcm_bytes") or "the binary does not say"
            return answer.unknown(f"spill 0, but in how much VTCM? {why}; rebuild it", 0, **details)
        if target.vtcm_mb is None:
            return answer.unknown(
                f"spill 0 in {mib(vtcm)} of VTCM, but how much {target.soc} has is unknown",
                0,
                **details,
            )
        if vtcm > target.vtcm_mb * MIB:
            return answer.fails(
                total,
                f"spill 0 only in {mib(vtcm)} of VTCM; {target.soc} has {target.vtcm_mb} MiB: "
                f"rebuild with vtcm_mb={target.vtcm_mb}",
                **details,
            )
        return answer.passes(
            total, f"spill 0 in {mib(vtcm)} of VTCM ({target.soc}: {target.vtcm_mb} MiB)", **details
        )


class MaxVtcmMb:
    """The VTCM that the binary was compiled for is within a limit in MiB (1024 * 1024 bytes)."""

    name = "max_vtcm_mb"
    signature = "max_vtcm_mb(mb)"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """``mb``, above 0."""
        return _mb_limit(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The binary."""
        return frozenset({Need.BINARY})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """Compare the compiled VTCM with the limit, byte by byte."""
        answer = Answer(self.name, limits["mb"], "MiB")
        binary = measurements.binary
        if binary is None:
            return answer.unknown(not_taken(measurements, Need.BINARY, "binary"))
        vtcm, note = compiled_vtcm(binary)
        if vtcm is None:
            why = _unknown(binary, "vtcm_bytes") or "the binary does not say"
            return answer.unknown(f"VTCM of the binary unknown: {why}")
        evidence = f"compiled for {mib(vtcm)} of VTCM ({vtcm} bytes)"
        details = {"compiled_vtcm_bytes": vtcm, **({"note": note} if note else {})}
        over = vtcm > limits["mb"] * MIB
        return (answer.fails if over else answer.passes)(vtcm / MIB, evidence, **details)


class MaxBinaryMb:
    """The binary's size is within a limit in MiB (1024 * 1024 bytes)."""

    name = "max_binary_mb"
    signature = "max_binary_mb(mb)"

    def limits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
        """``mb``, above 0."""
        return _mb_limit(self.signature, args, kwargs)

    def needs(self, limits: Limits) -> frozenset[Need]:
        """The artefact."""
        return frozenset({Need.ARTIFACT})

    def judge(self, limits: Limits, measurements: Measurements) -> Verdict:
        """Compare the size with the limit, byte by byte."""
        answer = Answer(self.name, limits["mb"], "MiB")
        known = [x.size_bytes for x in (measurements.artifact, measurements.binary) if x]
        if not known:
            return answer.unknown(not_taken(measurements, Need.ARTIFACT, "binary"))
        if len(set(known)) > 1 or known[0] <= 0:
            return answer.unknown(f"size of the binary unclear: {listed(map(str, known))} bytes")
        size = known[0]
        over = size > limits["mb"] * MIB
        evidence = f"the binary is {mib(size)} ({size} bytes)"
        return (answer.fails if over else answer.passes)(size / MIB, evidence, size_bytes=size)


def compiled_vtcm(binary: BinaryInfo) -> tuple[int | None, str]:
    """The VTCM in bytes that a binary was compiled for, and a note where its sources disagree.

    The compiler's option string wins: with ``vtcm_mb`` unset the graph blob says 4 MiB for
    QCS6490, the option string 2 MiB, and the spill is that of 2 MiB (measured). A binary without
    the string is judged by its most demanding graph, and only where every graph says.
    """
    graphs = [graph.vtcm_bytes for graph in binary.graphs]
    known = [size for size in graphs if size is not None and size > 0]
    blob = max(known) if known and len(known) == len(graphs) else None
    option = binary.compiled_vtcm_bytes
    if option is None or option <= 0:
        return blob, ""
    if blob is not None and blob != option:
        return option, f"option string: {option} bytes of VTCM, graph blob: {blob}; the first holds"
    return option, ""


def _unknown(binary: BinaryInfo, field: str) -> str:
    """Why a graph's or the binary's ``field`` is None, by the reader's first reason for it."""
    return next((why for key, why in binary.unknown.items() if key.endswith(field)), "")


def _mb_limit(signature: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Limits:
    def form(mb: float) -> None: ...

    given = bound(signature, form, args, kwargs)
    return {"mb": number(signature, "mb", given["mb"], above=0)}
