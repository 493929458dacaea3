"""Pictures of single text lines, and the score that counts in reading them.

Everything is drawn in code with Pillow and the font that Pillow brings along, so nothing has to be
downloaded and every machine sees the same pictures. The texts for calibration and those for
testing are apart. Needs ``rapidocr-onnxruntime`` (which brings Pillow) for the models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

PACKAGE = "rapidocr_onnxruntime"
NOT_INSTALLED = (
    "the models come with rapidocr-onnxruntime, which is not installed: "
    "pip install rapidocr-onnxruntime==1.4.4 (Python 3.11 or 3.12)"
)
RECOGNITION = "ch_PP-OCRv4_rec_infer.onnx"

LINE_HEIGHT = 48

CALIBRATION_LINES = (
    "Delivery note 4471", "Paris, 12 May 2023", "Total: 89.95 EUR", "Keep refrigerated",
    "LOT 88-1204-K", "Serial no. 0072516", "www.example.org", "Room 305, 2nd floor",
    "HANDLE WITH CARE", "Best before 06/2027", "Quantity 36 pcs", "Made in Portugal",
)  # fmt: skip
TEST_LINES = ("Invoice No. 20318", "Amount due 417.60", "Gate B12 boarding", "FRAGILE: glass")
TEST_WORDS = ("Invoice", "417.60", "boarding", "FRAGILE", "No. 20318", "Gate B12")

Sample = dict[str, np.ndarray]


def installed() -> bool:
    """Whether the package with the models is there. Only its files are used, no code of it."""
    return find_spec(PACKAGE) is not None


def model_path(name: str) -> Path:
    """A model file inside the package; a path that does not exist where it is not installed."""
    spec = find_spec(PACKAGE)
    folder = Path(spec.origin).parent if spec and spec.origin else Path(PACKAGE)
    return folder / "models" / name


def draw_text(text: str, size: int, ink: int, paper: int) -> Image:
    """A grey picture just large enough for ``text`` in a font of ``size`` pixels."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=size)
    left, top, right, bottom = font.getbbox(text)
    picture = Image.new("L", (int(right - left) + size // 2, int(size * 1.4)), paper)
    corner = (size / 4 - left, (picture.height - top - bottom) / 2)
    ImageDraw.Draw(picture).text(corner, text, ink, font)
    return picture


def as_input(picture: Image, width: int, height: int) -> Sample:
    """A picture as both networks want it: ``x`` 1x3xheightxwidth, from -1 to 1, 0 as padding."""
    x = np.zeros((1, 3, height, width), dtype=np.float32)
    x[..., : picture.height, : picture.width] = np.asarray(picture, np.float32) / 127.5 - 1
    return {"x": x}


def line(text: str, width: int, number: int) -> Sample:
    """One line of text, 48 high and squeezed where it is wider than ``width``.

    ``number`` picks ink and paper, so that a set of lines is not all of one contrast.
    """
    ink, paper = ((20, 245), (70, 215), (235, 40))[number % 3]
    picture = draw_text(text, 34, ink, paper)
    scaled = min(width, round(picture.width * LINE_HEIGHT / picture.height))
    return as_input(picture.resize((scaled, LINE_HEIGHT)), width, LINE_HEIGHT)


def calibration_lines(width: int) -> Iterator[Sample]:
    """Lines to calibrate recognition with: whole ones, or their words where they must be short."""
    texts: Iterable[str] = CALIBRATION_LINES
    if width < 240:
        texts = (word for text in CALIBRATION_LINES for word in text.split())
    for number, text in enumerate(texts):
        yield line(text, width, number)


def held_out_lines(width: int) -> list[tuple[Sample, str]]:
    """Lines to judge recognition by, each with what it says."""
    texts = TEST_LINES if width >= 240 else TEST_WORDS
    return [(line(text, width, number), text) for number, text in enumerate(texts)]


@cache
def alphabet() -> list[str]:
    """The recogniser's characters by class number, from the model's metadata; 0 is CTC's blank."""
    import onnx

    model = onnx.load(str(model_path(RECOGNITION)), load_external_data=False)
    stated = {entry.key: entry.value for entry in model.metadata_props}
    return ["", *stated["character"].splitlines(), " "]


def decode(probabilities: np.ndarray) -> str:
    """Greedy CTC: the best class of each step, repeats merged, blanks dropped.

    ``probabilities`` has the shape (1, steps, classes).
    """
    best = probabilities[0].argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return "".join(alphabet()[number] for number in best[changed]).strip()


def edit_distance(one: str, other: str) -> int:
    """Insertions, deletions and replacements that turn ``one`` into ``other``."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def character_accuracy(
    outputs: Sequence[Mapping[str, np.ndarray]], targets: Sequence[str]
) -> float:
    """One minus the character error rate over all lines; 1 is perfect. NaN where a value is NaN."""
    wrong = 0
    for output, target in zip(outputs, targets, strict=True):
        (probabilities,) = output.values()
        if not np.isfinite(probabilities).all():
            return float("nan")
        wrong += edit_distance(decode(probabilities), target)
    return 1 - wrong / sum(map(len, targets))
