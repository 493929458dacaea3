"""Fix a model's dynamic input shapes: a context binary has no dynamic ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_qnnctx.build.quantize.fold import constants_to_initializers, fold_constants
from pytest_qnnctx.build.quantize.graph import Shape, shape_of
from pytest_qnnctx.errors import Finding, ProductFailure, UsageError

if TYPE_CHECKING:
    from onnx import ModelProto


def input_shapes(model: ModelProto) -> dict[str, Shape]:
    """Each true input (not an initializer) of ``model`` and its shape, dynamic ones included."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {i.name: shape_of(i) for i in model.graph.input if i.name not in constants}


def is_static(model: ModelProto) -> bool:
    """Whether every input has a fixed shape."""
    return all(isinstance(d, int) for shape in input_shapes(model).values() for d in shape)


def fix_shapes(model: ModelProto, wanted: Mapping[str, tuple[int, ...]], *, name: str) -> bool:
    """Give ``model``'s inputs the shapes ``wanted``, in place; returns whether anything changed.

    Where it did, shape computations are folded away and inner shapes are inferred anew. ``name``
    is the model's, for messages. Raises UsageError where ``wanted`` does not fit the model's
    inputs, ProductFailure where an input is still dynamic.
    """
    stated = input_shapes(model)
    for tensor, shape in wanted.items():
        _check(tensor, shape, stated, name)
    dynamic = {
        tensor: shape
        for tensor, shape in stated.items()
        if tensor not in wanted and not all(isinstance(dim, int) for dim in shape)
    }
    if dynamic:
        raise ProductFailure(
            f"model {name!r} has dynamic inputs; a context binary needs fixed shapes",
            next_step=f"name them in the qnn_model marker: {_marker(stated, wanted)}",
            findings=[
                Finding(
                    "dynamic_input",
                    tensor,
                    f"input {tensor!r} has the shape {_show(shape)}",
                    f"give it a fixed shape: {_marker({tensor: shape}, {})}",
                )
                for tensor, shape in dynamic.items()
            ],
        )
    changed = {t: tuple(s) for t, s in wanted.items() if tuple(s) != stated[t]}
    if not changed:
        return False
    for info in model.graph.input:
        if info.name in changed:
            info.type.tensor_type.ClearField("shape")
            for dim in changed[info.name]:
                info.type.tensor_type.shape.dim.add().dim_value = dim
    constants_to_initializers(model)
    fold_constants(model, floats=False)
    return True


def _check(tensor: str, shape: tuple[int, ...], stated: Mapping[str, Shape], name: str) -> None:
    if tensor not in stated:
        raise UsageError(
            f"input_shapes names {tensor!r}, which is no input of model {name!r}",
            next_step=f"its inputs: {', '.join(f'{t} {_show(s)}' for t, s in stated.items())}",
        )
    if not all(isinstance(d, int) and not isinstance(d, bool) and d > 0 for d in shape):
        raise UsageError(f"input_shapes gives {tensor!r} the shape {tuple(shape)}")
    known = stated[tensor]
    # An input that states no dimensions at all takes any shape.
    fits = not known or (
        len(known) == len(shape)
        and all(not isinstance(k, int) or k == d for k, d in zip(known, shape, strict=True))
    )
    if not fits:
        raise UsageError(
            f"input_shapes gives {tensor!r} the shape {tuple(shape)}, "
            f"but model {name!r} has {_show(known)}",
            next_step="keep the fixed dimensions, name a number for each dynamic one",
        )


def _show(shape: Shape) -> str:
    return f"({', '.join('?' if dim is None else str(dim) for dim in shape)})"


def _marker(stated: Mapping[str, Shape], wanted: Mapping[str, tuple[int, ...]]) -> str:
    """The marker's argument to write. A dynamic first dimension is taken for the batch: 1."""
    parts = []
    unknown = False
    for tensor, shape in stated.items():
        dims: list[str] = []
        for position, dim in enumerate(wanted.get(tensor, shape)):
            if isinstance(dim, int):
                dims.append(str(dim))
            elif position == 0:
                dims.append("1")
            else:
                dims.append(f"DIM{position}")
                unknown = True
        parts.append(f'"{tensor}": ({", ".join(dims)}{"," if len(dims) == 1 else ""})')
    hint = " (a number for each DIM)" if unknown else ""
    return f"input_shapes={{{', '.join(parts)}}}{hint}"
