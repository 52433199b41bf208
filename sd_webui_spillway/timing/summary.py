"""What images cost, in words: a badge, the cells of a table, a sentence for a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from ..units import GIB, MIB, format_bytes, format_seconds
from .image_record import STAGES, ImageRecord, Outcome

TABLE_COLUMNS = ("image", *STAGES, "total", "it/s", "peak", "profile", "rungs", "outcome")
_NOTHING = "–"


class Delivered(Protocol):
    """A finished image, as far as a sentence needs it."""

    @property
    def record(self) -> ImageRecord: ...


class Result(Protocol):
    """What came of a job, as far as a sentence needs it."""

    @property
    def images(self) -> Sequence[Delivered]: ...

    @property
    def given_up(self) -> Sequence[ImageRecord]: ...

    @property
    def interrupted(self) -> bool: ...

    @property
    def unsaved_count(self) -> int: ...


def badge_text(record: ImageRecord) -> str:
    """``1.84 s · 10.9 it/s · 3.1 GiB + 0.4 shared · medvram``; what is unknown is left out."""
    parts = [format_seconds(record.total_seconds)]
    if record.steps_per_second is not None:
        parts.append(f"{record.steps_per_second:.1f} it/s")
    memory = _peaks(record)
    if memory:
        parts.append(memory)
    parts.append(record.profile_used)
    return " · ".join(parts) + (" (simulated)" if record.simulated else "")


def table_rows(records: Iterable[ImageRecord]) -> list[dict[str, str]]:
    """One row of texts for each record, keyed by :data:`TABLE_COLUMNS`; images are counted from 1."""
    return [_row(number, record) for number, record in enumerate(records, 1)]


def job_sentence(result: Result, asked_count: int | None = None) -> str:
    """``8 of 8 images in 12.31 s; 2 out-of-memory recoveries; nothing lost.``

    ``asked_count`` is how many images were asked for, where that is more than ended (a job that was stopped). The
    seconds are the sum over the images, those given up included. A call that several images of a batch shared
    counts as one recovery.
    """
    delivered, lost = [image.record for image in result.images], list(result.given_up)
    asked = max(asked_count or 0, len(delivered) + len(lost))
    seconds = sum(record.total_seconds for record in (*delivered, *lost))
    parts = [f"{len(delivered)} of {_count(asked, 'image')} in {format_seconds(seconds)}"]
    recoveries = _recoveries([*delivered, *lost])
    parts.append(_count(recoveries, "out-of-memory recovery", "out-of-memory recoveries") if recoveries else "")
    parts.append("stopped before the end" if result.interrupted else "")
    parts.append(f"{_count(len(lost), 'image')} given up" if lost else "")
    parts.append(f"{_count(result.unsaved_count, 'image')} could not be saved" if result.unsaved_count else "")
    parts.append("" if lost or result.unsaved_count else "nothing lost")
    return "; ".join(part for part in parts if part) + "."


def _row(number: int, record: ImageRecord) -> dict[str, str]:
    happened = record.stage_seconds
    row = {"image": str(number)}
    row.update({stage: f"{happened[stage]:.2f}" if stage in happened else _NOTHING for stage in STAGES})
    row["total"] = f"{record.total_seconds:.2f}{' (warm-up)' if record.warm_up else ''}"
    row["it/s"] = f"{record.steps_per_second:.1f}" if record.steps_per_second is not None else _NOTHING
    row["peak"] = (_peaks(record) or "unknown") + (" (simulated)" if record.simulated else "")
    asked_otherwise = record.profile_asked != record.profile_used
    row["profile"] = f"{record.profile_asked} → {record.profile_used}" if asked_otherwise else record.profile_used
    row["rungs"] = "; ".join(record.rungs) or _NOTHING
    row["outcome"] = str(record.outcome)
    if record.outcome is Outcome.GIVEN_UP and record.message:
        row["outcome"] += f": {record.message}"
    return row


def _peaks(record: ImageRecord) -> str:
    """``3.1 GiB + 0.4 shared``: the shared part only where it is known and not nothing."""
    shared_bytes = record.peak_shared_bytes or 0
    if record.peak_dedicated_bytes is None:
        return f"{format_bytes(shared_bytes)} shared" if shared_bytes else ""
    text = format_bytes(record.peak_dedicated_bytes)
    if not shared_bytes:
        return text
    in_gib = text.endswith("GiB") and shared_bytes >= 0.1 * GIB
    in_mib = text.endswith("MiB") and MIB <= shared_bytes < 0.1 * GIB
    shared = format_bytes(shared_bytes)
    return f"{text} + {shared.split()[0] if in_gib or in_mib else shared} shared"


def _recoveries(records: list[ImageRecord]) -> int:
    """Rungs taken, each once: what a batch did together stands in every one of its records."""
    total = 0
    batch: Counter[str] = Counter()
    previous_index = -1
    for record in sorted(records, key=lambda record: (record.started_at, record.batch_index)):
        if record.batch_index <= previous_index:
            total += batch.total()
            batch = Counter()
        batch |= Counter(record.rungs)
        previous_index = record.batch_index
    return total + batch.total()


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
