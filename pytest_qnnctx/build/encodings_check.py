"""Whether the encodings that were asked for are those that were compiled."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_qnnctx.build.compiled_graph import CompiledGraph, CompiledTensor, plain_name
from pytest_qnnctx.model import EncodingsUse

if TYPE_CHECKING:
    from pytest_qnnctx.build.quantize.prepare import ExpectedEncoding, PreparedModel

_BITS = {0x08: 8, 0x16: 16, 0x32: 32, 0x04: 4}


@dataclass(frozen=True)
class Comparison:
    """``applied`` and ``unseen`` name tensors; ``differing`` is one line for each that changed."""

    applied: tuple[str, ...]
    unseen: tuple[str, ...]
    differing: tuple[str, ...]


def compare_encodings(
    expected: Mapping[str, ExpectedEncoding],
    aliases: Mapping[str, Collection[str]],
    graphs: Iterable[CompiledGraph],
) -> Comparison:
    """Look each expected encoding up among the compiled tensors.

    ``aliases`` gives the other names that a tensor goes by in the QDQ graph (its quantized form).
    Per tensor, scale (1e-5 relative, the dump prints float32), offset and width are compared; per
    channel the dump holds the channel count and width alone. A tensor that is not in the compiled
    graph was fused away.
    """
    compiled: dict[str, CompiledTensor] = {}
    for graph in graphs:
        for name, tensor in graph.tensors.items():
            compiled.setdefault(plain_name(name), tensor)
    applied, unseen, differing = [], [], []
    for name, encoding in expected.items():
        names = [name, *aliases.get(name, ())]
        quantized = [compiled[n] for n in names if n in compiled and _is_quantized(compiled[n])]
        if not quantized:
            if any(n in compiled for n in names):
                differing.append(f"{name}: was compiled without quantization")
            else:
                unseen.append(name)
            continue
        problems = [p for p in (_difference(encoding, tensor) for tensor in quantized) if p]
        if len(problems) == len(quantized):
            differing.append(f"{name}: {problems[0]}")
        else:
            applied.append(name)
    return Comparison(tuple(applied), tuple(unseen), tuple(differing))


def encodings_use(
    prepared: PreparedModel, graphs: Collection[CompiledGraph]
) -> EncodingsUse | None:
    """What became of the encodings of ``prepared`` in the compiled ``graphs``.

    None where it had none; where ``graphs`` is empty nothing is known of their fate.
    """
    from pytest_qnnctx.build.onnx_graph import quantized_names

    if prepared.use is None or not graphs:
        return prepared.use
    found = compare_encodings(prepared.expected, quantized_names(prepared.path), graphs)
    return replace(
        prepared.use,
        applied=len(found.applied),
        unseen=found.unseen,
        differing=found.differing,
    )


def _is_quantized(tensor: CompiledTensor) -> bool:
    return tensor.scale is not None or tensor.channels is not None


def _difference(encoding: ExpectedEncoding, tensor: CompiledTensor) -> str:
    bits = _BITS.get(tensor.dtype & 0xFF)
    if bits != encoding.bits:
        return f"{encoding.bits} bits asked for, {bits} compiled"
    if tensor.channels is not None:
        if tensor.channels != len(encoding.scale):
            return f"{len(encoding.scale)} channels asked for, {tensor.channels} compiled"
        return ""
    if len(encoding.scale) != 1:
        return f"{len(encoding.scale)} channels asked for, one scale for all compiled"
    assert tensor.scale is not None
    if not math.isclose(tensor.scale, encoding.scale[0], rel_tol=1e-5):
        return f"scale {encoding.scale[0]:g} asked for, {tensor.scale:g} compiled"
    if tensor.offset != -encoding.zero_point[0]:
        return f"offset {-encoding.zero_point[0]} asked for, {tensor.offset} compiled"
    return ""
