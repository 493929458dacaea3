"""Which files make up a model: what must be hashed to know that nothing has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pytest_qnnctx.build.onnx_file import external_data, load_model, may_have_external_data
from pytest_qnnctx.build.pins.lfs import refuse_pointer
from pytest_qnnctx.build.quantize.calibration_inputs import listed_files
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Model


def model_files(model: Model) -> Mapping[str, Path]:
    """Every file of ``model`` by role.

    Roles: ``onnx``, ``external_data:<name>``, ``encodings``, ``calibration``,
    ``calibration:<name>`` (the raw files an input list names), ``reference`` and
    ``reference_external_data:<name>``; ``<name>`` is the path relative to the file that names it.
    Weights are not read. Raises UsageError for a path that is no file, ProductFailure for a model
    whose external data is missing or outside its directory, InfrastructureError for a Git LFS
    pointer in a file's place.
    """
    files = dict(_onnx_files(model.path, "onnx", "external_data"))
    if model.encodings is not None:
        files["encodings"] = _existing(model.encodings, "encodings file")
    if isinstance(model.calibration, Path):
        files["calibration"] = _existing(model.calibration, "calibration file")
        for path in listed_files(model.calibration):
            files[f"calibration:{_relative(path, model.calibration)}"] = path
    if model.reference is not None:
        files.update(_onnx_files(model.reference, "reference", "reference_external_data"))
    for role, path in files.items():
        refuse_pointer(path, role)
    return files


def _onnx_files(path: Path, role: str, data_role: str) -> Mapping[str, Path]:
    refuse_pointer(path, role)  # before it is refused for being no ONNX
    files = {role: path}
    if not may_have_external_data(path):
        return files
    for data in external_data(load_model(path, with_weights=False), path):
        files[f"{data_role}:{_relative(data, path)}"] = data
    return files


def _existing(path: Path, what: str) -> Path:
    if not path.is_file():
        raise UsageError(f"the {what} {path} does not exist", next_step="check its path")
    refuse_pointer(path, what)
    return path


def _relative(path: Path, origin: Path) -> str:
    try:
        return path.relative_to(origin.parent).as_posix()
    except ValueError:
        return Path(os.path.relpath(path, origin.parent)).as_posix()
