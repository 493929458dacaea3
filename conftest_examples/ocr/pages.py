"""Small pages with several text lines each, and the score that counts in finding them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from lines import CALIBRATION_LINES, TEST_LINES, Sample, as_input, draw_text

DETECTION = "ch_PP-OCRv4_det_infer.onnx"
PAGE_SIZE = 320

#: RapidOCR's own settings: a pixel is text above this probability, a region above that mean ...
TEXT_THRESHOLD = 0.3
BOX_THRESHOLD = 0.5
#: ... and the network marks shrunken regions, which are grown by this ratio of area to perimeter.
GROWTH = 1.6
#: A line is found where a box overlaps it by at least this much (intersection over union).
OVERLAP = 0.5

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


def page(texts: Sequence[str], number: int) -> tuple[Sample, list[Box]]:
    """A page with ``texts`` one below the other, and the box of each."""
    from PIL import Image

    ink, paper = ((20, 245), (70, 215), (235, 40))[number % 3]
    picture = Image.new("L", (PAGE_SIZE, PAGE_SIZE), paper)
    boxes: list[Box] = []
    top = 16 + 6 * (number % 4)
    for row, text in enumerate(texts):
        drawn = draw_text(text, 18 + 3 * ((number + row) % 3), ink, paper)
        left = 8 + 9 * ((number + 2 * row) % 5)
        picture.paste(drawn, (left, top))
        boxes.append((left, top, min(left + drawn.width, PAGE_SIZE), top + drawn.height))
        top += drawn.height + 24
    return as_input(picture, PAGE_SIZE, PAGE_SIZE), boxes


def calibration_pages() -> Iterator[Sample]:
    """Eight pages of one to five lines."""
    for number in range(8):
        count = 1 + number % 5
        texts = [CALIBRATION_LINES[(number * 3 + row) % 12] for row in range(count)]
        yield page(texts, number)[0]


def held_out_pages() -> list[tuple[Sample, list[Box]]]:
    """Three pages of texts that calibration has not seen, with the boxes of their lines."""
    return [page(TEST_LINES[: 2 + number], number) for number in range(3)]


def connected(mask: np.ndarray) -> np.ndarray:
    """Each connected region of ``mask`` (4 neighbours) with a number of its own; 0 elsewhere.

    Each pixel takes the smallest number among its neighbours until nothing changes.
    """
    numbers = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), mask.size + 1)
    while True:
        wide = np.pad(numbers, 1, constant_values=mask.size + 1)
        around = (wide[:-2, 1:-1], wide[2:, 1:-1], wide[1:-1, :-2], wide[1:-1, 2:])
        spread = np.where(mask, np.minimum.reduce([numbers, *around]), numbers)
        if np.array_equal(spread, numbers):
            return np.where(mask, numbers, 0)
        numbers = spread


def find_boxes(probability: np.ndarray) -> list[Box]:
    """The boxes of the text regions in a probability map (height, width)."""
    regions = connected(probability > TEXT_THRESHOLD)
    boxes = []
    for number in np.unique(regions[regions > 0]):
        rows, columns = np.nonzero(regions == number)
        left, top = float(columns.min()), float(rows.min())
        width, height = float(np.ptp(columns)) + 1, float(np.ptp(rows)) + 1
        if min(width, height) < 3 or probability[rows, columns].mean() < BOX_THRESHOLD:
            continue
        grow = GROWTH * width * height / (2 * (width + height))
        boxes.append((left - grow, top - grow, left + width + grow, top + height + grow))
    return boxes


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes, 0 to 1."""

    def area(left: float, top: float, right: float, bottom: float) -> float:
        return max(right - left, 0) * max(bottom - top, 0)

    common = area(
        max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])
    )
    return common / (area(*one) + area(*other) - common)


def line_f1(outputs: Sequence[Mapping[str, np.ndarray]], targets: Sequence[Sequence[Box]]) -> float:
    """F1 of lines found: 1 where every line has a box of its own and no box is spare."""
    found = boxes = lines = 0
    for output, target in zip(outputs, targets, strict=True):
        (probability,) = output.values()
        if not np.isfinite(probability).all():
            return float("nan")
        left_over = find_boxes(probability[0, 0])
        boxes, lines = boxes + len(left_over), lines + len(target)
        for line in target:
            best = max(left_over, key=lambda box, line=line: overlap(box, line), default=None)
            if best is not None and overlap(best, line) >= OVERLAP:
                left_over.remove(best)
                found += 1
    return 2 * found / (boxes + lines)
