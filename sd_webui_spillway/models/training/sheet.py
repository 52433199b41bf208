"""Contact sheets: pictures with their captions beneath, so that figures can be looked at."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from ..atomic import whole_file
from .judging import in_words
from .measure import Outcome

RIGHT, WRONG = "right.png", "wrong.png"
MOST_BYTES = 500_000
_COLUMNS, _CELL, _GAP, _LINE, _TITLE = 8, 128, 10, 12, 22
"""Pixels, but for the number of columns."""
_INK, _RED = (30, 30, 30), (180, 20, 20)
_FEWER_COLOURS = (
    (256, Image.Quantize.MEDIANCUT), (64, Image.Quantize.FASTOCTREE), (32, Image.Quantize.FASTOCTREE),
)  # fmt: skip
"""The median cut is truer, and slow where hardly two pixels are alike, which is where it does not fit."""


def write_sheets(outcomes: Sequence[Outcome], folder: Path, most: int = 40) -> list[Path]:
    """``right.png`` with pictures that keep all their caption says, ``wrong.png`` with the others and what was seen.

    Each shows up to ``most``, taken evenly from all there are, in at most 500 kB; one with nothing to show is not
    written. Returns the files.

    Raises:
        StorageError: the folder cannot be written.
    """
    written = []
    for name, kept, words in ((RIGHT, True, "As their captions say"), (WRONG, False, "Not as their captions say")):
        fitting = [one for one in outcomes if one.verdict.everything is kept]
        if not fitting:
            continue
        shown = [fitting[index * len(fitting) // most] for index in range(most)] if len(fitting) > most else fitting
        title = f"{words}: {len(fitting)} of {len(outcomes)} pictures ({len(shown)} shown)"
        content = _png(contact_sheet(shown, title))
        with whole_file(folder / name) as path:
            path.write_bytes(content)
        written.append(folder / name)
    return written


def contact_sheet(outcomes: Sequence[Outcome], title: str) -> Image.Image:
    """The outcomes' pictures in rows, each with its caption and, in red, what else was seen if it is wrong."""
    font = ImageFont.load_default()
    draw = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    texts = [_lines(one, draw, font) for one in outcomes]
    rows = [texts[start : start + _COLUMNS] for start in range(0, len(texts), _COLUMNS)]
    heights = [_CELL + _GAP + _LINE * max(map(len, row)) for row in rows]
    columns = min(_COLUMNS, max(len(outcomes), 4))
    sheet = Image.new("RGB", (columns * (_CELL + _GAP) + _GAP, sum(heights) + _TITLE + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((_GAP, _GAP // 2), title, fill=_INK, font=font)
    for index, (one, lines) in enumerate(zip(outcomes, texts, strict=True)):
        x = _GAP + index % _COLUMNS * (_CELL + _GAP)
        y = _TITLE + sum(heights[: index // _COLUMNS])
        picture = Image.fromarray(one.picture.permute(1, 2, 0).numpy())
        picture.thumbnail((_CELL, _CELL))
        sheet.paste(picture, (x, y))
        for number, (line, ink) in enumerate(lines):
            draw.text((x, y + _CELL + 2 + number * _LINE), line, fill=ink, font=font)
    return sheet


def _lines(one: Outcome, draw: ImageDraw.ImageDraw, font: object) -> list[tuple[str, tuple[int, int, int]]]:
    lines = [(line, _INK) for line in _wrapped(one.caption, draw, font)]
    if not one.verdict.everything:
        lines += [(line, _RED) for line in _wrapped(f"seen: {in_words(one.seen)}", draw, font)]
    return lines


def _wrapped(text: str, draw: ImageDraw.ImageDraw, font: object) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and draw.textlength(longer, font=font) > _CELL:  # type: ignore[arg-type]
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _png(sheet: Image.Image) -> bytes:
    """In full colour where it fits :data:`MOST_BYTES`, else with fewer colours, at last smaller."""
    content = _encoded(sheet)
    for count, method in _FEWER_COLOURS:
        if len(content) > MOST_BYTES:
            content = _encoded(sheet.quantize(count, method, dither=Image.Dither.NONE))
    while len(content) > MOST_BYTES:
        sheet = sheet.resize((sheet.width * 3 // 4, sheet.height * 3 // 4))
        content = _encoded(sheet.quantize(*_FEWER_COLOURS[-1], dither=Image.Dither.NONE))
    return content


def _encoded(sheet: Image.Image) -> bytes:
    stream = io.BytesIO()
    sheet.save(stream, "PNG", optimize=True)
    return stream.getvalue()
