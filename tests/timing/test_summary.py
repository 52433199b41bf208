"""What a person reads of an image and of a job."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sd_webui_spillway.host_port import DeliveredImage, JobResult
from sd_webui_spillway.timing import ImageRecord, Outcome, badge_text, job_sentence, table_rows
from sd_webui_spillway.timing.summary import TABLE_COLUMNS
from tests.records import make_record

GIB = 2**30


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"peak_shared_bytes": int(0.4 * GIB)}, "1.84 s · 10.9 it/s · 3.1 GiB + 0.4 shared · medvram"),
        ({"peak_shared_bytes": 0}, "1.84 s · 10.9 it/s · 3.1 GiB · medvram"),
        ({}, "1.84 s · 10.9 it/s · 3.1 GiB · medvram"),
        ({"steps_per_second": None, "peak_dedicated_bytes": None}, "1.84 s · medvram"),
        ({"peak_dedicated_bytes": None, "peak_shared_bytes": GIB}, "1.84 s · 10.9 it/s · 1.0 GiB shared · medvram"),
        ({"peak_shared_bytes": 20 * 2**20}, "1.84 s · 10.9 it/s · 3.1 GiB + 20 MiB shared · medvram"),
        (
            {"peak_dedicated_bytes": 50 * 2**20, "peak_shared_bytes": 20 * 2**20},
            "1.84 s · 10.9 it/s · 50 MiB + 20 shared · medvram",
        ),
        ({"simulated": True}, "1.84 s · 10.9 it/s · 3.1 GiB · medvram (simulated)"),
        ({"total_seconds": 75.4, "profile_used": "stream"}, "1 min 15 s · 10.9 it/s · 3.1 GiB · stream"),
    ],
)
def test_badge(changes: dict[str, Any], text: str) -> None:
    assert badge_text(make_record(1, **changes)) == text


def test_table_rows_are_texts_under_the_same_columns() -> None:
    rows = table_rows([
        make_record(0, warm_up=True, simulated=True, rungs=("tiled", "split"), peak_shared_bytes=GIB),
        make_record(
            1, profile_asked="medvram", outcome=Outcome.GIVEN_UP, message="no memory at all", file_path=None,
            steps_per_second=None, peak_dedicated_bytes=None,
        ),
    ])
    assert [tuple(row) for row in rows] == [TABLE_COLUMNS] * 2
    assert rows[0] == {
        "image": "1", "encode": "0.10", "sample": "1.50", "hires": "–", "decode": "0.20", "save": "0.04",
        "total": "1.84 (warm-up)", "it/s": "10.9", "peak": "3.1 GiB + 1.0 shared (simulated)",
        "profile": "auto → medvram", "rungs": "tiled; split", "outcome": "delivered",
    }
    assert rows[1]["image"] == "2"
    assert rows[1]["profile"] == "medvram"
    assert rows[1]["it/s"] == rows[1]["rungs"] == "–"
    assert rows[1]["peak"] == "unknown"
    assert rows[1]["outcome"] == "given up: no memory at all"


def result(
    delivered: list[ImageRecord], given_up: tuple[ImageRecord, ...] = (), interrupted: bool = False
) -> JobResult:
    images = tuple(DeliveredImage(record, Path(record.file_path or "")) for record in delivered)
    return JobResult("job", images, given_up, (), interrupted)


def test_a_job_that_lost_nothing() -> None:
    """Two batches of four: what a batch did together stands in each of its records and counts once."""
    records = [
        make_record(i, total_seconds=1.5, rungs=("ran out, tiled",) if i < 4 else ("ran out, tiled", "split"))
        for i in range(8)
    ]
    assert job_sentence(result(records)) == "8 of 8 images in 12.00 s; 3 out-of-memory recoveries; nothing lost."


def test_batches_are_told_apart_where_images_share_a_time_or_one_each_their_own_rung() -> None:
    same_time = [make_record(i, started_at=5.0 + i // 4, rungs=("tiled",)) for i in range(8)]
    assert "2 out-of-memory recoveries" in job_sentence(result(same_time))
    own = [make_record(i, rungs=("tiled",) if i == 2 else ()) for i in range(4)]
    assert "1 out-of-memory recovery;" in job_sentence(result(own))
    one_by_one = [make_record(i, batch_size=1, batch_index=0, rungs=("tiled",)) for i in range(3)]
    assert "3 out-of-memory recoveries" in job_sentence(result(one_by_one))


def test_a_job_without_trouble_one_with_losses_one_stopped_and_an_empty_one() -> None:
    assert job_sentence(result([make_record(0)])) == "1 of 1 image in 1.84 s; nothing lost."
    lost = make_record(1, outcome=Outcome.GIVEN_UP)
    assert job_sentence(result([make_record(0)], (lost,))) == "1 of 2 images in 3.68 s; 1 image given up."
    stopped = job_sentence(result([make_record(0)], interrupted=True), asked_count=8)
    assert stopped == "1 of 8 images in 1.84 s; stopped before the end; nothing lost."
    assert job_sentence(result([])) == "0 of 0 images in 0.00 s; nothing lost."


def test_an_image_that_no_disk_took_is_not_called_kept() -> None:
    full = dataclasses.replace(result([make_record(0)], interrupted=True), unsaved_count=1)
    assert job_sentence(full) == "1 of 1 image in 1.84 s; stopped before the end; 1 image could not be saved."


def test_a_sentence_needs_only_records() -> None:
    @dataclass(frozen=True)
    class Image:
        record: ImageRecord

    @dataclass(frozen=True)
    class Plain:
        images: tuple[Image, ...]
        given_up: tuple[ImageRecord, ...] = ()
        interrupted: bool = False
        unsaved_count: int = 0

    assert job_sentence(Plain((Image(make_record(0)),))).startswith("1 of 1 image")
