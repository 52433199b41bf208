"""The log as CSV and JSON, for a spreadsheet or a program. Columns carry their units in their names."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable
from typing import TextIO

from .image_record import COLUMNS, ImageRecord

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_RUNG_SEPARATOR = " → "


def write_csv(records: Iterable[ImageRecord], stream: TextIO, byte_order_mark: bool = False) -> int:
    """Write a header and a row for each record as they come; returns how many.

    Open the stream with ``newline=""`` and ``encoding="utf-8"``. Excel takes the text for UTF-8 only with the byte
    order mark. Unknown is an empty cell. Text that a spreadsheet would run as a formula gets a leading apostrophe
    (OWASP, "CSV Injection"). The rungs are one cell, separated by " → ".
    """
    if byte_order_mark:
        stream.write("\ufeff")
    writer = csv.writer(stream)
    writer.writerow(COLUMNS)
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007 - the last value is the result
        values = {**record.as_dict(), "rungs": _RUNG_SEPARATOR.join(record.rungs)}
        writer.writerow([_cell(values[column]) for column in COLUMNS])
    return count


def write_json(records: Iterable[ImageRecord], stream: TextIO) -> int:
    """Write one array of objects, a line each, as they come; returns how many. Unknown is ``null``."""
    stream.write("[")
    count = 0
    for count, record in enumerate(records, 1):
        stream.write(",\n" if count > 1 else "\n")
        stream.write(json.dumps(_finite(record.as_dict()), ensure_ascii=False, allow_nan=False))
    stream.write("\n]\n")
    return count


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str):
        text = _writable(value)
        return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
    return value


def _finite(values: dict[str, object]) -> dict[str, object]:
    """JSON has no infinity, and UTF-8 no surrogates (they stand for the bytes of a file name that is no Unicode)."""
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            values[name] = None
        elif isinstance(value, str):
            values[name] = _writable(value)
        elif isinstance(value, list):
            values[name] = [_writable(text) for text in value]
    return values


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
