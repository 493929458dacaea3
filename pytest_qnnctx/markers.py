"""From markers to plain data: which model a test is about and which gates it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.fixtures import NAMES

if TYPE_CHECKING:
    import pytest

    from pytest_qnnctx.judge.gate import Condition, Gate
    from pytest_qnnctx.model import Model
    from pytest_qnnctx.registry import Registry

MODEL_MARKER = "qnn_model"
MODEL_LINE = (
    "qnn_model(path, *, encodings=None, calibration=None, name=None, input_shapes=None, "
    "reference=None): the ONNX model that a test is about; paths are relative to the test's file, "
    "then to the root. encodings: AIMET file. calibration: .npz, input list, or inputs. "
    "input_shapes: fixes dynamic inputs. reference: the FP32 ONNX of a model that is quantized."
)


def marker_lines(registry: Registry) -> list[str]:
    """A line of ``pytest --markers`` for each marker of ours."""
    gates = [
        f"{gate.signature}: {gate.help}" for gate in registry.gates.values() if not gate.always
    ]
    return [MODEL_LINE, *gates]


def asks_for_gates(item: pytest.Item, gates: Collection[str]) -> bool:
    """Whether a marker on ``item`` asks for one of ``gates``."""
    return any(mark.name in gates for mark in item.iter_markers())


def conditions_of(item: pytest.Item, registry: Registry) -> tuple[Condition, ...]:
    """The gates of ``item``: those that are always on, and those that its markers ask for.

    Where a function and its class or module ask for the same gate (of the same metric), the
    function's markers win; several on one of them are all judged. Raises UsageError that names
    test and marker.
    """
    from pytest_qnnctx.judge.gate import Condition

    found: list[Condition] = []
    for gate in registry.gates.values():
        if gate.always:
            found.append(Condition(gate, {}))
            continue
        nearest: dict[object, object] = {}
        for node, mark in item.iter_markers_with_node(gate.name):
            metric, limits = _limits(item, gate, mark, registry)
            if nearest.setdefault(metric, node) is node:
                found.append(Condition(gate, limits))
    return tuple(found)


def _limits(
    item: pytest.Item, gate: Gate, mark: pytest.Mark, registry: Registry
) -> tuple[object, Mapping[str, Any]]:
    """What tells markers of one gate apart (its metric), and the limits that ``mark`` sets."""
    from pytest_qnnctx.judge.metric_lookup import bind_metric

    where = f"{item.nodeid}: marker {gate.name}"
    try:
        limits = gate.limits(mark.args, mark.kwargs)
        metric = limits.get("metric")
        if metric is not None:
            limits = bind_metric(limits, registry.metrics)
        gate.needs(limits)
    except UsageError as error:
        raise UsageError(f"{where}: {error.what}", next_step=error.next_step) from error
    except Exception as error:
        raise UsageError(f"{where}: the gate raised {type(error).__name__}: {error}") from error
    return metric if isinstance(metric, str | None) else id(metric), limits


def check_markers(
    item: pytest.Item, registry: Registry, gates: Collection[str], registered: Collection[str]
) -> None:
    """Raise UsageError where a marker of ours cannot be what was meant.

    That is: arguments that have no acceptable form, and, on a test that is ours, a marker that
    nobody ``registered`` and that looks like a gate's name: its gate would not be judged. ``gates``
    are the registry's names, asked for once for all tests.
    """
    from difflib import get_close_matches

    mark = item.get_closest_marker(MODEL_MARKER)
    if mark is not None:
        _arguments(item, mark)
    ours = mark is not None or NAMES.intersection(getattr(item, "fixturenames", ()))
    for other in item.iter_markers() if ours else ():
        if other.name in registered or other.name in gates:
            continue
        if close := get_close_matches(other.name, [*gates, MODEL_MARKER], 1, 0.75):
            raise UsageError(
                f"{item.nodeid}: there is no marker {other.name}",
                next_step=f"did you mean {close[0]}? Nothing was judged by it",
            )
    if asks_for_gates(item, gates):
        conditions_of(item, registry)
        if getattr(item, "fixturenames", None) is None:
            raise UsageError(f"{item.nodeid}: a gate's marker needs a test function")


def model_of(item: pytest.Item, root: Path) -> Model:
    """The Model that the marker ``qnn_model`` of ``item`` declares.

    Raises UsageError where there is no marker or one of its files does not exist.
    """
    from pytest_qnnctx.model import Model

    mark = item.get_closest_marker(MODEL_MARKER)
    if mark is None:
        raise UsageError(
            f"{item.nodeid} does not say which model it is about",
            next_step='mark it with @pytest.mark.qnn_model("model.onnx")',
        )
    given = _arguments(item, mark)
    folders = (item.path.parent, root)

    def file(what: str, value: Any) -> Path | None:
        return None if value is None else _find(item, what, Path(value), folders)

    calibration = given["calibration"]
    if isinstance(calibration, str | Path):
        calibration = file("calibration", calibration)
    path = file("model", given["path"])
    assert path is not None
    return Model(
        path=path,
        name=given["name"] or "",
        encodings=file("encodings", given["encodings"]),
        calibration=calibration,
        input_shapes={n: tuple(s) for n, s in (given["input_shapes"] or {}).items()},
        reference=file("reference", given["reference"]),
    )


def as_model(value: Any) -> Model:
    """``value``, which the fixture qnn_model gave. Raises UsageError where it is no Model."""
    from pytest_qnnctx.model import Model

    if isinstance(value, Model):
        return value
    raise UsageError(
        f"the fixture qnn_model gave {value!r}, which is no Model",
        next_step="return pytest_qnnctx.Model(path, ...) from it",
    )


def _find(item: pytest.Item, what: str, path: Path, folders: Sequence[Path]) -> Path:
    for folder in folders:
        with suppress(OSError):  # a name that is too long is no file either
            if (folder / path).is_file():
                return folder / path
    looked = " or ".join(dict.fromkeys(str(folder) for folder in folders))
    raise UsageError(
        f"{item.nodeid}: the {what} file '{path}' does not exist in {looked}",
        next_step="correct the path in the marker qnn_model",
    )


def _declared(
    path: Any,
    *,
    encodings: Any = None,
    calibration: Any = None,
    name: str | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    reference: Any = None,
) -> dict[str, Any]:
    return locals()


def _arguments(item: pytest.Item, mark: pytest.Mark) -> dict[str, Any]:
    where = f"{item.nodeid}: marker {MODEL_MARKER}"
    try:
        inspect.signature(_declared).bind(*mark.args, **mark.kwargs)
    except TypeError as error:
        raise UsageError(f"{where}: {error}", next_step=MODEL_LINE.partition(":")[0]) from error
    given = _declared(*mark.args, **mark.kwargs)
    for what in ("path", "encodings", "reference"):
        value = given[what]
        if not isinstance(value, str | Path) and (what == "path" or value is not None):
            raise UsageError(f"{where}: {what} is no path: {value!r}")
    if given["name"] is not None and not isinstance(given["name"], str):
        raise UsageError(f"{where}: name is no text: {given['name']!r}")
    shapes = given["input_shapes"]
    if shapes is not None and not _are_shapes(shapes):
        raise UsageError(
            f'{where}: input_shapes is no mapping such as {{"x": (1, 3, 224, 224)}}: {shapes!r}'
        )
    return given


def _are_shapes(shapes: Any) -> bool:
    return isinstance(shapes, Mapping) and all(
        isinstance(name, str)
        and isinstance(shape, list | tuple)
        and all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape)
        for name, shape in shapes.items()
    )
