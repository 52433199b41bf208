"""Opening the log's SQLite file: one process at a time, a corrupt one set aside.

Facts about SQLite used here are from its documents "Write-Ahead Logging" and "How To Corrupt An SQLite Database File".
The file is never opened other than by SQLite: closing any other handle would drop SQLite's POSIX locks on it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path

from ..errors import StorageError, first_line
from .log_rows import SCHEMA, SCHEMA_VERSION

logger = logging.getLogger(__name__)

BUSY_SECONDS = 20.0
"""How long a process waits for another one that is writing."""
BRIEFLY_SECONDS = 0.2
"""And how long, once that was in vain."""
_COMPANIONS = ("-wal", "-shm", "-journal")


def is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file itself is damaged or no database.

    SQLITE_CORRUPT and SQLITE_NOTADB are the only two that Python raises as plain ``DatabaseError``; the error code
    itself is there from Python 3.11 on only.
    """
    return type(error) is sqlite3.DatabaseError


def is_locked(error: Exception) -> bool:
    """Whether another process holds the file."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def storage_error(path: Path, error: Exception) -> StorageError:
    """What a person is told of an error of SQLite or of the file system."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    if "full" in text or "No space left" in text:
        return StorageError(f"The image log {path} cannot be written, because the disk is full.", detail=text)
    if "readonly" in text:
        return StorageError(f"The image log {path} cannot be written, because it is read-only.", detail=text)
    if "unable to open" in text:
        sentence = f"The image log {path} cannot be opened or made; its folder must be one that can be written."
        return StorageError(sentence, detail=text)
    if "locked" in text:
        return StorageError(f"The image log {path} is kept busy by another program.", detail=text)
    return StorageError(f"The image log {path} cannot be used: {text}.", detail=text)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at this path now; ``None`` where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_log(path: Path, corrupt: tuple[int, int] | None = None) -> tuple[sqlite3.Connection, str | None]:
    """A connection for any thread (one at a time) to a healthy, writable log; a new one is made where there is none.

    ``corrupt`` is the :func:`identity` of a file already found corrupt while in use: it is set aside unless another
    process has done so. Damage far from the newest rows does not show at opening.

    Returns also a sentence for the user where a corrupt file had to be set aside.

    Raises:
        StorageError: the folder or file cannot be written, the file is another program's or a newer version's.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_one_opens(path):
            if corrupt is None or identity(path) != corrupt:
                try:
                    return _connect(path), None
                except sqlite3.Error as error:
                    if not is_corrupt(error):
                        raise
            aside = _set_aside(path)
            logger.warning("image log %s is corrupt, set aside as %s", path, aside.name)
            notice = f"The image log {path.name} was damaged; it was set aside as {aside} and a new one was begun."
            return _connect(path), notice
    except (sqlite3.Error, OSError) as error:
        raise storage_error(path, error) from error


@contextmanager
def _only_one_opens(path: Path) -> Iterator[None]:
    """Hold off every other process that is opening this log, so that none sets aside what another has just begun.

    An empty SQLite file is the lock: it works on every system and ends with its process. It is never deleted, since a
    process waiting on a deleted one would lock nothing.
    """
    lock_path = path.with_name(f"{path.name}.lock")
    with closing(sqlite3.connect(lock_path, timeout=BUSY_SECONDS, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def _connect(path: Path) -> sqlite3.Connection:
    # isolation_level None: every statement commits by itself, so an appended row is in the file when append returns.
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"The image log {path} was written by a newer version of this software; update it or move the file away.",
            detail=f"schema version {version}, known up to {SCHEMA_VERSION}",
        )
    foreign = version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if foreign:
        raise StorageError(f"The file {path} is a database of another program; the image log needs another place.")
    connection.execute("PRAGMA journal_mode=WAL")
    # NORMAL: a killed process loses nothing, a power cut at most the newest rows; FULL would wait for the disk.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    if version == 0:
        for statement in SCHEMA:
            connection.execute(statement)
    # Written even where it is right already: SQLite opens a file that it may only read without a word.
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    # Reads the newest pages, so that most damage shows now and not in the middle of a job.
    connection.execute("SELECT * FROM images ORDER BY id DESC LIMIT 1").fetchone()
    connection.execute("COMMIT")


def _set_aside(path: Path) -> Path:
    """Rename a corrupt file and what belongs to it. The companions go first: a write-ahead log left beside a new
    database of the same name would be played into it."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{count}")
    for suffix in _COMPANIONS:
        companion = path.with_name(path.name + suffix)
        if companion.exists():
            companion.replace(aside.with_name(aside.name + suffix))
    path.replace(aside)
    return aside
