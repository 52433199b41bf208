"""Exports: every column by its name, nothing invented, nothing a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from sd_webui_spillway.timing import ImageRecord
from sd_webui_spillway.timing.export import write_csv, write_json
from sd_webui_spillway.timing.image_record import COLUMNS
from tests.records import make_record


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_has_a_column_for_every_field_and_empty_cells_for_unknown() -> None:
    stream = io.StringIO(newline="")
    assert write_csv([make_record(1, rungs=("tiled", "split")), make_record(2)], stream) == 2
    assert stream.getvalue().splitlines()[0] == ",".join(COLUMNS)
    first, second = rows_of(stream.getvalue())
    assert first["seed"] == "1"
    assert first["total_seconds"] == "1.84"
    assert first["peak_shared_bytes"] == ""
    assert first["rungs"] == "tiled → split"
    assert first["outcome"] == "delivered"
    assert second["rungs"] == ""


def test_csv_with_a_byte_order_mark_is_what_excel_takes_for_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_csv([make_record(1, model="模型")], stream, byte_order_mark=True)
    assert path.read_bytes().startswith(b"\xef\xbb\xbfrecord_id,")
    assert "模型" in path.read_text(encoding="utf-8-sig")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_csv_text_is_never_a_formula(start: str) -> None:
    stream = io.StringIO(newline="")
    evil = f"{start}cmd|' /C calc'!A0"
    write_csv([make_record(1, model=evil, message=evil, rungs=(evil,), seed=-5)], stream)
    (row,) = rows_of(stream.getvalue())
    assert row["model"] == row["message"] == row["rungs"] == f"'{evil}"
    assert row["seed"] == "-5"


@pytest.mark.parametrize("text", ['a "quoted", thing', "two\nlines", "semi;colon"])
def test_csv_keeps_awkward_text_in_one_cell(text: str) -> None:
    stream = io.StringIO(newline="")
    write_csv([make_record(1, message=text)], stream)
    (row,) = rows_of(stream.getvalue())
    assert row["message"] == text


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_is_one_array_of_the_records(count: int) -> None:
    stream = io.StringIO()
    records = [make_record(i, rungs=("a", "b")) for i in range(count)]
    assert write_json(records, stream) == count
    assert json.loads(stream.getvalue()) == [record.as_dict() for record in records]


def test_json_has_no_infinity_and_no_broken_text(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with path.open("w", encoding="utf-8") as stream:
        write_json([make_record(1, total_seconds=math.inf, file_path="/x/\udce9.png", rungs=("\udce9",))], stream)
    (row,) = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert row["total_seconds"] is None
    assert row["file_path"] == "/x/?.png"


@pytest.mark.parametrize("write", [write_csv, write_json])
def test_records_are_written_as_they_come(write: object) -> None:
    stream = io.StringIO(newline="")
    seen: list[int] = []

    def records() -> Iterator[ImageRecord]:
        for number in range(3):
            seen.append(stream.getvalue().count("tiny"))
            yield make_record(number)

    write(records(), stream)  # type: ignore[operator]
    assert seen == [0, 1, 2]
