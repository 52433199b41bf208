"""The image log through long use: a file that another program holds, as many images as a year makes."""

from __future__ import annotations

import sqlite3
import time
import timeit
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from sd_webui_spillway.errors import StorageError
from sd_webui_spillway.timing import ImageLog
from sd_webui_spillway.timing.image_record import COLUMNS
from tests.records import make_record


def test_a_log_that_another_program_holds_costs_one_wait_and_not_one_an_image(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sd_webui_spillway.timing.log_file.BUSY_SECONDS", 1.0)
    monkeypatch.setattr("sd_webui_spillway.timing.image_log.BUSY_SECONDS", 1.0)
    path = tmp_path / "images.db"
    log = ImageLog.open(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    waits = []
    for number in range(4):
        began = time.perf_counter()
        with pytest.raises(StorageError, match="another program"):
            log.append(make_record(number))
        waits.append(time.perf_counter() - began)
    holder.execute("COMMIT")
    holder.close()
    assert waits[0] >= 0.9
    assert max(waits[1:]) < 0.7
    log.append(make_record(5))
    assert [r.seed for r in log.records()] == [5]
    assert log._connection is not None
    assert log._connection.execute("PRAGMA busy_timeout").fetchone() == (1000,)
    log.close()


def test_the_oldest_images_make_room_for_new_ones(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sd_webui_spillway.timing.image_log.KEPT_IMAGES", 50)
    monkeypatch.setattr("sd_webui_spillway.timing.image_log.TRIMMED_EVERY", 20)
    log = ImageLog.open(tmp_path / "images.db")
    for number in range(200):
        log.append(make_record(number))
        assert log.count() < 50 + 20
    assert {r.seed for r in log.records(limit=-1)} == set(range(150, 200))
    log.close()


def test_a_hundred_thousand_images_are_answered_for_in_a_moment(tmp_path: Path) -> None:
    """Most rows are put in at once; what is timed are the questions of the page and of a job."""
    log = ImageLog.open(tmp_path / "images.db")
    for number in range(100):
        log.append(make_record(number))
    connection = log._connection
    assert connection is not None
    values = ["lower(hex(randomblob(16)))" if name == "record_id" else name for name in COLUMNS]
    connection.execute(
        f"INSERT INTO images ({', '.join(COLUMNS)}, file_name) SELECT {', '.join(values)}, i || file_name FROM images, "
        "(WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i FROM n)"
    )
    assert log.count() == 100_000
    newest = replace(make_record(100_000), record_id=uuid.uuid4().hex)
    size, name = (newest.width, newest.height), Path(make_record(1).file_path or "").name
    questions = {
        "append": lambda: log.append(newest),
        "newest page": lambda: log.records(limit=25),
        "count": log.count,
        "file names": lambda: log.by_file_names([f"{number}{name}" for number in range(1, 501)]),
        "ids": lambda: log.by_id_prefixes([newest.record_id[:8]]),
        "median": lambda: log.median_seconds(newest.profile_used, newest.model, *size, newest.steps),
    }
    seconds = {}
    for what, question in questions.items():
        seconds[what] = min(timeit.repeat(question, number=1, repeat=5))
    log.close()
    assert max(seconds.values()) < 0.25, seconds
