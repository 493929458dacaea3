"""Where a tensor's encoding comes from: its own entry, or a tensor that must share one with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pytest_qnnctx.build.quantize.encoding_entries import Encoding
from pytest_qnnctx.build.quantize.graph import Graph
from pytest_qnnctx.build.quantize.roles import FOLLOWS_INPUT, FUSED_ACTIVATIONS, LAYOUT


@dataclass(frozen=True)
class FoundEncoding:
    """The tensor ``source`` has the entry; ``how`` is "own", "inherited" or "fused"."""

    source: str
    how: str


class EncodingSources:
    """Where each tensor's encoding comes from."""

    def __init__(self, graph: Graph, entries: Mapping[str, Encoding]) -> None:
        self._graph = graph
        self._entries = entries
        self._memo: dict[str, FoundEncoding | None] = {}

    def find(self, tensor: str) -> FoundEncoding | None:
        """Its own entry; else that of the tensor it is a rearrangement of; else that of what the
        compiler fuses into its producer.
        """
        if tensor not in self._memo:
            self._memo[tensor] = self._search(tensor)
        return self._memo[tensor]

    def cause(self, tensor: str) -> str:
        """The tensor whose encoding would cover this one too, "" where it needs its own."""
        maker = self._graph.producers.get(tensor)
        if maker is not None and not maker.domain and maker.op in FOLLOWS_INPUT and maker.inputs:
            return maker.inputs[0]
        user = self._graph.only_consumer(tensor)
        if maker is not None and user is not None and not user.domain:
            return user.outputs[0] if user.op in FUSED_ACTIVATIONS else ""
        return ""

    def _search(self, tensor: str) -> FoundEncoding | None:
        # Walk first, so that a long chain of reshapes needs no recursion.
        current, how = tensor, "own"
        while True:
            if current in self._entries:
                return FoundEncoding(current, how)
            maker = self._graph.producers.get(current)
            if maker is None or maker.domain or maker.op not in FOLLOWS_INPUT:
                break
            if not maker.inputs or not self._graph.is_float(maker.inputs[0]):
                break
            current, how = maker.inputs[0], "inherited"
        return self._forward(tensor)

    def _forward(self, tensor: str) -> FoundEncoding | None:
        current, how = tensor, "own"
        seen = set()
        while current not in seen:
            seen.add(current)
            if current in self._entries:
                return FoundEncoding(current, how)
            user = self._graph.only_consumer(current)
            if user is None or user.domain or user.inputs[0] != current:
                return None
            if user.op in FUSED_ACTIVATIONS and tensor in self._graph.producers:
                how = "fused"
            elif user.op in LAYOUT:
                how = "inherited" if how == "own" else how
            else:
                return None
            current = user.outputs[0]
        return None


def closest(name: str, candidates: Collection[str]) -> str:
    """The candidate that ``name`` most likely was, or "".

    A prefix or suffix may have come or gone (``module.``, ``_updated``), or one part of the name
    changed; failing that, the nearest spelling.
    """
    parts = _parts(name)
    best, most = "", 0
    for candidate in candidates:
        other = _parts(candidate)
        shared = max(_common(parts, other), _common(parts[::-1], other[::-1]))
        shorter = min(len(parts), len(other))
        if shared > most and (shared == shorter or shared >= max(2, shorter - 1)):
            best, most = candidate, shared
    near = get_close_matches(name, candidates, n=1, cutoff=0.6)
    if near and most < 2:
        return near[0]
    return best


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[/.:_]+", name) if part]


def _common(one: list[str], other: list[str]) -> int:
    """How many parts the two begin with alike."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
