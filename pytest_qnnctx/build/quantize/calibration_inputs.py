"""Inputs for a quantizer, in whichever form they were given, as one list of samples."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Model
from pytest_qnnctx.samples import samples_sha256

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pytest_qnnctx.model import Array, Calibration, Sample

    #: Graph input -> (element type, shape).
    Inputs = Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]]

_SUFFIXES = (".npz", ".txt")
_KINDS = {"f": "a float", "i": "an integer", "u": "an integer", "b": "a boolean"}


def materialise(model: Model) -> Model:
    """``model`` with calibration samples that can be read any number of times.

    A file stays a file. A function is called, an iterable is read to its end, once. Raises
    UsageError where that yields something else than ``{input: array}``, or nothing.
    """
    given = model.calibration
    if given is None or isinstance(given, Path):
        return model
    if isinstance(given, str):
        return replace(model, calibration=Path(given))
    items: Any = given() if callable(given) else given
    if isinstance(items, Path | str):
        return replace(model, calibration=Path(items))
    if isinstance(items, Mapping) or not isinstance(items, Iterable):
        raise UsageError(
            f"the calibration of model {model.name!r} is {type(items).__name__}, "
            "not an iterable of {input: array}",
            next_step="give a list of dictionaries, a function that returns one, or a file",
        )
    samples = tuple(_as_sample(item, index) for index, item in enumerate(items))
    if not samples:
        raise UsageError(
            f"the calibration of model {model.name!r} is empty",
            next_step="give some dozens of typical inputs",
        )
    return replace(model, calibration=samples)


def _as_sample(item: object, index: int) -> Sample:
    import numpy as np

    if not isinstance(item, Mapping):
        raise UsageError(
            f"calibration sample {index} is {type(item).__name__}, not {{input: array}}"
        )
    return {str(name): np.array(value) for name, value in item.items()}


def load_calibration(calibration: Calibration, inputs: Inputs) -> list[Sample]:
    """The samples of ``calibration``, each checked against the graph's ``inputs``.

    In a ``.npz`` file each array is named as an input and holds the samples on a new first axis
    (where the input's own first dimension is 1 it may stand for it). A ``.txt`` file is a
    qnn-net-run input list: one inference a line, ``name:=path`` or bare paths in the order of the
    inputs, raw float32 files, relative to the list (or, as the vendor's tool has it, to the working
    directory). Raises UsageError for anything that does not fit, naming sample and input.
    """
    if not isinstance(calibration, Path):
        # A function may name a file.
        made = materialise(Model(Path("model"), calibration=calibration)).calibration
        assert made is not None
        calibration = made
    raw: Iterable[Sample]
    if isinstance(calibration, Path):
        origin = str(calibration)
        reader = _read_npz if _suffix(calibration) == ".npz" else _read_list
        raw = reader(calibration, inputs)
    else:
        assert not callable(calibration)
        origin, raw = "the calibration", calibration
    samples: list[Sample] = [
        _checked(sample, inputs, f"{origin}, sample {index}") for index, sample in enumerate(raw)
    ]
    if not samples:
        raise UsageError(f"{origin} holds no samples", next_step="give some dozens of inputs")
    return samples


def calibration_sha256(calibration: Calibration) -> str:
    """A hash of the content: of the file (and of the raw files that a list names), or the arrays.

    An iterator must go through :func:`materialise` first; one is refused with UsageError.
    """
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            text = part if isinstance(part, bytes) else str(part).encode()
            digest.update(len(text).to_bytes(8, "little") + text)

    if isinstance(calibration, Path):
        add("file", _bytes(calibration))
        for path in listed_files(calibration):
            add(_bytes(path))
        return digest.hexdigest()
    if not isinstance(calibration, Sequence):
        raise UsageError("calibration inputs must be a file or a list when they are hashed")
    add("samples", samples_sha256(calibration))
    return digest.hexdigest()


def listed_files(calibration: Path) -> tuple[Path, ...]:
    """The raw files that an input list names, each once, sorted; empty for another form.

    Raises UsageError where one is missing.
    """
    if _suffix(calibration) != ".txt":
        return ()
    return tuple(sorted({path for line in _lines(calibration) for _, path in line}))


# --- files ------------------------------------------------------------------------------------


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise UsageError(
            f"the calibration file {path} is neither .npz nor .txt",
            next_step="give a .npz file or a qnn-net-run input list (.txt)",
        )
    return suffix


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the calibration file {path}: {error.strerror or error}",
            next_step="check calibration= of the qnn_model marker",
        ) from None


def _read_npz(path: Path, inputs: Inputs) -> Iterator[Sample]:
    import io

    import numpy as np

    try:
        with np.load(io.BytesIO(_bytes(path)), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # numpy and zipfile raise a dozen kinds for damaged files
        raise UsageError(f"{path} is not a .npz file of plain arrays: {error}") from None
    _check_names(arrays, inputs, str(path))
    stacked = {name: _stacked(array, inputs[name][1], name, path) for name, array in arrays.items()}
    counts = {len(array) for array in stacked.values()}
    if len(counts) != 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in stacked.items())
        raise UsageError(f"the arrays of {path} hold different numbers of samples: {lengths}")
    for index in range(counts.pop()):
        yield {name: array[index] for name, array in stacked.items()}


def _stacked(array: Array, shape: tuple[int, ...], name: str, path: Path) -> Array:
    if array.ndim == len(shape) + 1 and array.shape[1:] == shape:
        return array
    if array.ndim == len(shape) and shape[:1] == (1,) and array.shape[1:] == shape[1:]:
        return array[:, None]
    raise UsageError(
        f"{path} has the shape {array.shape} for input {name!r}; it needs {('N', *shape)}, "
        "the samples on the first axis"
    )


def _lines(path: Path) -> list[list[tuple[str, Path]]]:
    """Per inference: (input name or "", raw file)."""
    try:
        text = _bytes(path).decode()
    except UnicodeDecodeError:
        raise UsageError(f"the input list {path} is not text") from None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.lstrip().startswith(("#", "%")):
            continue
        entries = []
        for word in words:
            name, found, target = word.partition(":=")
            entries.append((name if found else "", _raw_file(target or name, path, number)))
        lines.append(entries)
    return lines


def _raw_file(word: str, path: Path, number: int) -> Path:
    if "\0" not in word:
        for candidate in (path.parent / word, Path(word)):
            if candidate.is_file():
                return candidate
    raise UsageError(
        f"line {number} of {path} names {word!r}, and there is no such file",
        next_step="paths are relative to the list, or to the working directory",
    )


def _read_list(path: Path, inputs: Inputs) -> Iterator[Sample]:
    import numpy as np

    order = list(inputs)
    for number, entries in enumerate(_lines(path), 1):
        sample: dict[str, Array] = {}
        for position, (name, file) in enumerate(entries):
            if not name and position >= len(order):
                raise UsageError(
                    f"inference {number} of {path} names {len(entries)} files; "
                    f"the model has {len(order)} inputs"
                )
            tensor = name or order[position]
            if tensor not in inputs:
                raise UsageError(
                    f"inference {number} of {path} names {name!r}, which is no input of the model",
                    next_step=f"the inputs are: {', '.join(inputs)}",
                )
            dtype, shape = inputs[tensor]
            raw = _bytes(file)
            if len(raw) != 4 * math.prod(shape):
                raise UsageError(
                    f"{file} has {len(raw)} bytes; input {tensor!r} of shape {shape} needs "
                    f"{4 * math.prod(shape)} (float32)"
                )
            values = np.frombuffer(raw, "<f4").reshape(shape)
            sample[tensor] = _native(values, np.dtype(dtype), f"{file}")
        yield sample


def _native(values: npt.NDArray[np.float32], dtype: np.dtype[Any], where: str) -> Array:
    """float32 values as the input's own type: the vendor's tool feeds every input as float32."""
    import numpy as np

    if dtype.kind == "f":
        return values.astype(dtype)
    if not np.isfinite(values).all() or (values != np.rint(values)).any():
        raise UsageError(f"{where} holds values that are not whole, for an input of type {dtype}")
    return values.astype(dtype)


# --- checks -----------------------------------------------------------------------------------


def _check_names(names: Iterable[str], inputs: Inputs, where: str) -> None:
    given = set(names)
    extra, missing = sorted(given - set(inputs)), sorted(set(inputs) - given)
    if extra:
        raise UsageError(
            f"{where} names {extra[0]!r}, which is no input of the model",
            next_step=f"the inputs are: {', '.join(inputs)}",
        )
    if missing:
        raise UsageError(f"{where} has no array for input {missing[0]!r}")


def _checked(sample: Sample, inputs: Inputs, where: str) -> Sample:
    import numpy as np

    _check_names(sample, inputs, where)
    result: dict[str, Array] = {}
    for name, (wanted, shape) in inputs.items():
        array, dtype = np.asarray(sample[name]), np.dtype(wanted)
        if array.shape != shape:
            raise UsageError(
                f"{where}: input {name!r} has the shape {array.shape}, the model needs {shape}"
            )
        integers = array.dtype.kind in "iu" and dtype.kind in "iu"
        if array.dtype.kind != dtype.kind and not integers:
            raise UsageError(
                f"{where}: input {name!r} is {array.dtype}, the model needs "
                f"{_KINDS.get(dtype.kind, 'another')} type ({dtype})"
            )
        if not np.isfinite(array).all():
            raise UsageError(f"{where}: input {name!r} holds NaN or infinity")
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        if not np.isfinite(cast).all() or (integers and (cast != array).any()):
            raise UsageError(f"{where}: input {name!r} holds values that do not fit {dtype}")
        result[name] = cast
    return result
