"""The log of every image: one row each, in SQLite, safe against kills, other processes and damaged files."""

from __future__ import annotations

import re
import sqlite3
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..errors import StorageError
from .image_record import ImageRecord
from .log_file import BRIEFLY_SECONDS, BUSY_SECONDS, identity, is_corrupt, is_locked, open_log, storage_error
from .log_rows import (
    BEFORE_RECORD,
    DELETE_UP_TO,
    INSERT,
    MEDIAN_SECONDS,
    NEWEST_FIRST,
    SELECT,
    LogFilter,
    base_name,
    from_row,
    stored,
    to_row,
)

KEPT_IMAGES = 200_000
"""More than these, the oldest are deleted: the file stays below some 200 MB however long it is in use."""
TRIMMED_EVERY = 1000
"""So many images are added between two looks at that."""
MEDIAN_OVER = 200
"""A median is of the newest this many images: a new driver or card shows after a while."""
LEAST_ID_DIGITS = 8
_ID_PREFIX = re.compile(rf"[0-9a-f]{{{LEAST_ID_DIGITS},32}}")
_PAGE = 1000
_NAMES_AT_ONCE = 500  # SQLite before 3.32 takes 999 values in a statement
_T = TypeVar("_T")


@dataclass(frozen=True)
class Median:
    """The median seconds of an image, and of how many images."""

    seconds: float
    count: int


class ImageLog:
    """Every method may be called from any thread, and any number of processes may have the same file open.

    What a method does is in the file when it returns. A file found corrupt, at opening or later, is set aside and a
    new one begun; :attr:`notices` then names it.

    Raises (opening and every method but ``close``):
        StorageError: the file cannot be read or written; one sentence naming it. What was logged before is kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._notices: list[str] = []
        self._identity: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._in_vain = False
        """The last work waited for another process that did not let go of the file."""
        with self._lock:
            self._open()

    @classmethod
    def open(cls, path: Path) -> ImageLog:
        """The log at this path; its folder and file are made where they are missing."""
        return cls(path)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences for the user about what happened to the file, oldest first."""
        return tuple(self._notices)

    def append(self, record: ImageRecord) -> None:
        """Write a record; one with the same ``record_id`` is replaced."""
        row = to_row(record)

        def write(connection: sqlite3.Connection) -> None:
            number = connection.execute(INSERT, row).lastrowid or 0
            if number % TRIMMED_EVERY == 0:
                connection.execute(DELETE_UP_TO, [number - KEPT_IMAGES])

        self._run(write)

    def records(self, where: LogFilter = LogFilter(), limit: int = 200, offset: int = 0) -> list[ImageRecord]:  # noqa: B008 - frozen
        """The matching records, newest first; a negative limit means all of them."""
        clause, values = where.as_sql()
        # The clause holds column names and placeholders only.
        return self._select(f"{clause} {NEWEST_FIRST} LIMIT ? OFFSET ?", [*values, limit, offset])

    def stream(self, where: LogFilter = LogFilter()) -> Iterator[ImageRecord]:  # noqa: B008 - frozen
        """Every matching record, newest first, read in pages: for exports of any length. A record appended meanwhile
        shifts nothing."""
        clause, values = where.as_sql()
        connect = "AND" if clause else "WHERE"
        page = self._select(f"{clause} {NEWEST_FIRST} LIMIT ?", [*values, _PAGE])
        while page:
            yield from page
            last = page[-1]
            page = self._select(
                f"{clause} {connect} {BEFORE_RECORD} {NEWEST_FIRST} LIMIT ?",
                [*values, last.started_at, stored(last.record_id), _PAGE],
            )

    def count(self, where: LogFilter = LogFilter()) -> int:  # noqa: B008 - frozen
        """How many records match."""
        clause, values = where.as_sql()
        sql = f"SELECT count(*) FROM images {clause}"  # noqa: S608 - column names and placeholders only
        return int(self._run(lambda connection: connection.execute(sql, values).fetchone()[0]))

    def get(self, record_id: str) -> ImageRecord | None:
        """The record of that id."""
        found = self._select("WHERE record_id = ?", [stored(record_id)])
        return found[0] if found else None

    def by_file_names(self, names: Iterable[str]) -> dict[str, ImageRecord]:
        """The newest record of each file name (folders do not count) that has one, under the name as it was given."""
        asked = list(dict.fromkeys(names))
        newest: dict[str, ImageRecord] = {}
        bases = list(dict.fromkeys(base_name(name) for name in asked))
        for start in range(0, len(bases), _NAMES_AT_ONCE):
            chunk = [stored(name) for name in bases[start : start + _NAMES_AT_ONCE]]
            for record in self._select(f"WHERE file_name IN ({', '.join('?' * len(chunk))}) {NEWEST_FIRST}", chunk):
                newest.setdefault(base_name(record.file_path or ""), record)
        return {name: newest[base_name(name)] for name in asked if base_name(name) in newest}

    def by_id_prefixes(self, prefixes: Iterable[str]) -> dict[str, ImageRecord]:
        """The newest record whose ``record_id`` begins so, by the prefix; what is no such prefix (at least
        :data:`LEAST_ID_DIGITS` hexadecimal digits) has none."""
        # "g" follows the last hexadecimal digit: a range, so that the index of the ids is used.
        clause = f"WHERE record_id >= ? AND record_id < ? {NEWEST_FIRST} LIMIT 1"
        asked = [prefix for prefix in dict.fromkeys(prefixes) if _ID_PREFIX.fullmatch(prefix)]
        found = ((prefix, self._select(clause, [prefix, f"{prefix}g"])) for prefix in asked)
        return {prefix: records[0] for prefix, records in found if records}

    def median_seconds(self, profile: str, model: str, width: int, height: int, steps: int) -> Median | None:
        """Over the newest images delivered so, warm-ups apart; ``None`` where there are none."""
        values = [stored(model), width, height, steps, stored(profile), MEDIAN_OVER]
        rows = self._run(lambda connection: connection.execute(MEDIAN_SECONDS, values).fetchall())
        return Median(statistics.median(row[0] for row in rows), len(rows)) if rows else None

    def clear(self) -> None:
        """Delete every record. Other processes see it at once."""
        self._run(lambda connection: connection.execute("DELETE FROM images"))

    def close(self) -> None:
        """Close the file; calling it again does nothing. Any other method raises ``StorageError`` from now on."""
        with self._lock:
            self._closed = True
            self._drop()

    def _select(self, rest: str, values: list[object]) -> list[ImageRecord]:
        rows = self._run(lambda connection: connection.execute(f"{SELECT} {rest}", values).fetchall())
        return [from_row(row) for row in rows]

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do the work on the file that now lies at the path; a corrupt one is replaced once."""
        with self._lock:
            if self._closed:
                raise StorageError(f"The image log {self._path} is closed.")
            try:
                result = self._mended(work)
            except (sqlite3.Error, OverflowError) as error:
                self._wait_for_others(is_locked(error))
                raise storage_error(self._path, error) from error
            self._wait_for_others(False)
            return result

    def _mended(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return work(self._current())
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
        self._open(corrupt=self._identity)
        return work(self._current())

    def _wait_for_others(self, in_vain: bool) -> None:
        """Where another process held the file all the time, wait only briefly for it until it has let go: each image
        of a night would be as long in coming."""
        if self._in_vain is not in_vain and self._connection is not None:
            self._in_vain = in_vain
            seconds = BRIEFLY_SECONDS if in_vain else BUSY_SECONDS
            self._connection.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")

    def _current(self) -> sqlite3.Connection:
        """The open connection, unless another process has set its file aside: then the new file's."""
        if self._connection is None or identity(self._path) != self._identity:
            self._open()
        if self._connection is None:
            raise StorageError(f"The image log {self._path} is closed.")
        return self._connection

    def _open(self, corrupt: tuple[int, int] | None = None) -> None:
        self._drop()
        self._connection, notice = open_log(self._path, corrupt)
        self._in_vain = False
        self._identity = identity(self._path)
        if notice:
            self._notices.append(notice)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
