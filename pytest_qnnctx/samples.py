"""Inputs of inferences: one hash for all that keep results by what went in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnnctx.model import Sample


def samples_sha256(samples: Iterable[Sample]) -> str:
    """A hash of names, types, shapes and values of all samples, in their order."""
    import numpy as np

    digest = hashlib.sha256()
    for sample in samples:
        for name in sorted(sample):
            array = np.asarray(sample[name])
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            head = json.dumps([name, array.dtype.str, list(array.shape)])
            digest.update(f"{len(head)}:{head}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(b"end of sample")
    return digest.hexdigest()
