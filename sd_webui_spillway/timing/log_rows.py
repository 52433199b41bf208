"""Image records as rows of the log's one table, and the questions asked of it, as SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .image_record import COLUMNS, ImageRecord, Outcome

SCHEMA_VERSION = 1
"""Kept in ``PRAGMA user_version``. A change of ``ImageRecord`` needs a new number and a step from the one before."""

SCHEMA = (
    """
    CREATE TABLE images (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        file_name TEXT,
        record_id TEXT NOT NULL UNIQUE, job_id TEXT, started_at REAL,
        host TEXT, model TEXT, device_name TEXT, simulated INTEGER,
        width INTEGER, height INTEGER, steps INTEGER, sampler TEXT, seed INTEGER,
        batch_size INTEGER, batch_index INTEGER,
        profile_asked TEXT, profile_used TEXT,
        encode_seconds REAL, sample_seconds REAL, hires_seconds REAL, decode_seconds REAL, save_seconds REAL,
        total_seconds REAL, steps_per_second REAL, warm_up INTEGER,
        peak_dedicated_bytes INTEGER, peak_shared_bytes INTEGER, estimated_dedicated_bytes INTEGER,
        moved_bytes INTEGER,
        rungs TEXT, outcome TEXT, message TEXT, file_path TEXT
    )
    """,
    "CREATE INDEX images_by_time ON images (started_at, id)",
    "CREATE INDEX images_by_job ON images (job_id, started_at, id)",
    "CREATE INDEX images_by_profile ON images (profile_used, started_at, id)",
    "CREATE INDEX images_by_model ON images (model, started_at, id)",
    "CREATE INDEX images_by_file_name ON images (file_name, started_at)",
    "CREATE INDEX images_for_medians ON images (model, width, height, steps, profile_used, started_at, id)",
)

# A placeholder for each value; every name in these texts is a field of ImageRecord, never a user's word.
INSERT = (
    f"INSERT OR REPLACE INTO images ({', '.join(COLUMNS)}, file_name) "  # noqa: S608
    f"VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
)
DELETE_UP_TO = "DELETE FROM images WHERE id <= ?"
SELECT = f"SELECT {', '.join(COLUMNS)} FROM images"  # noqa: S608
NEWEST_FIRST = "ORDER BY started_at DESC, id DESC"
BEFORE_RECORD = "(started_at, id) < (?, (SELECT id FROM images WHERE record_id = ?))"
"""The rows that come after one given by its time and ``record_id``, newest first."""
MEDIAN_SECONDS = f"""
    SELECT total_seconds FROM images
    WHERE model = ? AND width = ? AND height = ? AND steps = ? AND profile_used = ?
    AND NOT warm_up AND outcome = '{Outcome.DELIVERED.value}' {NEWEST_FIRST} LIMIT ?
"""  # noqa: S608


@dataclass(frozen=True)
class LogFilter:
    """Which images: every field given must match; ``profile`` is the profile that was used."""

    profile: str | None = None
    model: str | None = None
    width: int | None = None
    height: int | None = None
    job_id: str | None = None

    def as_sql(self) -> tuple[str, list[Any]]:
        """A WHERE clause, empty where nothing was asked, and its values."""
        asked = {
            "profile_used": self.profile,
            "model": self.model,
            "width": self.width,
            "height": self.height,
            "job_id": self.job_id,
        }
        given = {column: value for column, value in asked.items() if value is not None}
        if not given:
            return "", []
        return "WHERE " + " AND ".join(f"{column} = ?" for column in given), [stored(v) for v in given.values()]


def base_name(path: str) -> str:
    """The last part of a path of any system: a log may be read on another one than it was written on."""
    return re.split(r"[\\/]", path)[-1]


def stored(value: Any) -> Any:
    """A value as SQLite takes it. A file name that is no Unicode (surrogates stand for its bytes) becomes a blob."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _restored(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


_FROM_ROW: Mapping[str, Callable[[Any], Any]] = {
    "simulated": bool,
    "warm_up": bool,
    "rungs": lambda text: tuple(json.loads(text)),
    "outcome": Outcome,
}
_CONVERTERS = tuple(_FROM_ROW.get(column, _restored) for column in COLUMNS)


def to_row(record: ImageRecord) -> list[Any]:
    """The values for :data:`INSERT`."""
    values = {**record.as_dict(), "rungs": json.dumps(record.rungs)}
    file_name = base_name(record.file_path) if record.file_path is not None else None
    return [*(stored(values[column]) for column in COLUMNS), stored(file_name)]


def from_row(row: Sequence[Any]) -> ImageRecord:
    """The record in a row of :data:`SELECT`."""
    return ImageRecord(*(convert(value) for convert, value in zip(_CONVERTERS, row, strict=True)))
