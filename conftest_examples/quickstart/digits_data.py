"""The 400 held-out handwritten digits that the quickstart is judged on."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def dataset() -> list[tuple[dict[str, np.ndarray], int]]:
    """Pairs of inputs (``image``, 1x1x8x8 float32 from 0 to 1) and target (the digit)."""
    with np.load(Path(__file__).with_name("digits_heldout.npz")) as held_out:
        images, labels = held_out["images"], held_out["labels"]
    return [
        ({"image": image[None, None].astype(np.float32) / 16}, int(label))
        for image, label in zip(images, labels, strict=True)
    ]
