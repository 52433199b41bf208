"""The image log: what goes in comes out, in order, from any thread."""

from __future__ import annotations

import math
import sqlite3
import threading
import typing
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sd_webui_spillway.errors import StorageError
from sd_webui_spillway.timing import ImageLog, ImageRecord, LogFilter, Median, Outcome
from sd_webui_spillway.timing.image_record import COLUMNS
from tests.records import make_record


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ImageLog]:
    log = ImageLog.open(tmp_path / "data" / "images.db")
    yield log
    log.close()


# Surrogates stand for bytes of file names that are no Unicode; they occur.
_TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
_STRATEGIES: dict[object, st.SearchStrategy[object]] = {
    str: _TEXT,
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    Outcome: st.sampled_from(Outcome),
    tuple[str, ...]: st.lists(_TEXT, max_size=3).map(tuple),
}


def _strategy(kind: object) -> st.SearchStrategy[object]:
    parts = typing.get_args(kind)
    if type(None) in parts:
        return st.none() | _strategy(parts[0])
    return _STRATEGIES[kind]


_HINTS = typing.get_type_hints(ImageRecord)
_RECORDS = st.builds(ImageRecord, **{f.name: _strategy(_HINTS[f.name]) for f in fields(ImageRecord)})


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=_RECORDS)
def test_any_record_comes_back_equal(log: ImageLog, record: ImageRecord) -> None:
    log.clear()
    log.append(record)
    back = log.get(record.record_id)
    assert back == record
    assert back is not None
    assert [type(getattr(back, c)) for c in COLUMNS] == [type(getattr(record, c)) for c in COLUMNS]
    if record.file_path is not None:
        assert log.by_file_names([record.file_path]) == {record.file_path: record}


def test_the_table_has_a_column_for_every_field(log: ImageLog) -> None:
    with sqlite3.connect(log.path) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(images)")]
    connection.close()
    assert set(columns) == {*COLUMNS, "id", "file_name"}


def test_newest_first_in_pages(log: ImageLog) -> None:
    made = [make_record(i) for i in range(7)]
    for record in (*made[3:], *made[:3]):
        log.append(record)
    assert log.records() == made[::-1]
    assert log.records(limit=3, offset=2) == [made[4], made[3], made[2]]
    assert log.records(limit=-1) == made[::-1]
    assert log.count() == 7


def test_equal_times_keep_the_order_of_writing(log: ImageLog) -> None:
    made = [make_record(i, started_at=5.0) for i in range(5)]
    for record in made:
        log.append(record)
    assert log.records() == made[::-1]


def test_stream_reads_everything_though_rows_are_added_meanwhile(log: ImageLog) -> None:
    made = [make_record(i, started_at=float(i // 3)) for i in range(2500)]
    for record in made:
        log.append(record)
    streamed = []
    for record in log.stream():
        if len(streamed) == 10:
            log.append(make_record(9999, started_at=1e9))
        streamed.append(record)
    assert streamed == made[::-1]
    assert [r.seed for r in log.stream(LogFilter(job_id="job-2"))] == list(range(23, 15, -1))
    assert list(log.stream(LogFilter(model="none"))) == []


@pytest.mark.parametrize(
    ("where", "seeds"),
    [
        (LogFilter(), [3, 2, 1, 0]),
        (LogFilter(profile="dedicated"), [1]),
        (LogFilter(model="big"), [3, 2]),
        (LogFilter(model="big", width=1024), [3]),
        (LogFilter(height=768), [3]),
        (LogFilter(job_id="job-0"), [3, 2, 1, 0]),
        (LogFilter(model="x' OR 1 --"), []),
    ],
)
def test_filters(log: ImageLog, where: LogFilter, seeds: list[int]) -> None:
    log.append(make_record(0))
    log.append(make_record(1, profile_used="dedicated"))
    log.append(make_record(2, model="big"))
    log.append(make_record(3, model="big", width=1024, height=768))
    assert [r.seed for r in log.records(where)] == seeds
    assert log.count(where) == len(seeds)


def test_images_are_found_by_file_name_whatever_the_folder(log: ImageLog) -> None:
    log.append(make_record(1, file_path="/old/a.png"))
    log.append(make_record(2, file_path="C:\\new\\a.png"))
    log.append(make_record(3, file_path="b.png"))
    log.append(make_record(4, file_path=None))
    found = log.by_file_names(["a.png", "/elsewhere/b.png", "c.png", ""])
    assert {name: record.seed for name, record in found.items()} == {"a.png": 2, "/elsewhere/b.png": 3}


def test_more_file_names_than_one_statement_takes(log: ImageLog) -> None:
    log.append(make_record(1500))
    found = log.by_file_names(f"{i:05d}.png" for i in range(40_000))
    assert list(found) == ["01500.png"]


def test_median_leaves_out_warm_ups_and_images_given_up(log: ImageLog) -> None:
    ask = ("medvram", "tiny", 512, 512, 20)
    assert log.median_seconds(*ask) is None
    log.append(make_record(0, total_seconds=90.0, warm_up=True))
    log.append(make_record(1, total_seconds=80.0, outcome=Outcome.GIVEN_UP))
    assert log.median_seconds(*ask) is None
    for number, seconds in enumerate((1.0, 2.0, 9.0), 2):
        log.append(make_record(number, total_seconds=seconds))
    for number, change in enumerate(({"steps": 30}, {"width": 64}, {"model": "x"}, {"profile_used": "lowvram"}), 9):
        log.append(make_record(number, total_seconds=70.0, **change))
    assert log.median_seconds(*ask) == Median(2.0, 3)


def test_median_is_of_the_newest_200(log: ImageLog) -> None:
    for number in range(300):
        log.append(make_record(number, total_seconds=100.0 if number < 100 else 1.0))
    assert log.median_seconds("medvram", "tiny", 512, 512, 20) == Median(1.0, 200)


def test_a_record_written_again_replaces_the_first(log: ImageLog) -> None:
    log.append(make_record(1))
    changed = replace(make_record(1), message="saved late")
    log.append(changed)
    assert log.records() == [changed]


def test_clear_empties_the_log_for_every_reader(log: ImageLog) -> None:
    other = ImageLog.open(log.path)
    log.append(make_record(1))
    assert other.count() == 1
    other.clear()
    assert log.records() == []
    log.append(make_record(2))
    assert other.count() == 1
    other.close()


def test_threads_share_one_log(log: ImageLog) -> None:
    failures: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for number in range(start, start + 50):
                log.append(make_record(number))
                log.records(limit=5)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert log.count() == 200


def test_a_closed_log_says_so_and_closing_again_is_nothing(log: ImageLog) -> None:
    log.close()
    log.close()
    with pytest.raises(StorageError, match="is closed"):
        log.append(make_record(1))


def test_a_closed_log_leaves_nothing_open(tmp_path: Path) -> None:
    log = ImageLog.open(tmp_path / "images.db")
    log.append(make_record(1))
    log.close()
    assert not (tmp_path / "images.db-wal").exists()
    (tmp_path / "images.db").rename(tmp_path / "moved.db")
    moved = ImageLog.open(tmp_path / "moved.db")
    assert moved.count() == 1
    moved.close()


def test_a_number_too_large_for_the_file_is_a_clear_error(log: ImageLog) -> None:
    with pytest.raises(StorageError, match=r"images\.db"):
        log.append(make_record(1, seed=2**70))
    log.append(make_record(2, total_seconds=math.inf))
    assert log.count() == 1


@pytest.mark.parametrize("where", [LogFilter(), LogFilter(model="m"), LogFilter(profile="p"), LogFilter(job_id="j")])
def test_pages_come_from_an_index_and_are_never_sorted(log: ImageLog, where: LogFilter) -> None:
    """What keeps 100,000 rows fast, without a clock in the test."""
    clause, values = where.as_sql()
    connection = sqlite3.connect(log.path)
    plan = " ".join(
        row[3]
        for row in connection.execute(
            f"EXPLAIN QUERY PLAN SELECT * FROM images {clause} ORDER BY started_at DESC, id DESC LIMIT 200", values
        )
    )
    connection.close()
    assert "USING INDEX" in plan
    assert "TEMP B-TREE" not in plan
