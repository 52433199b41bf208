"""What the routes answer: plain values under unit-named keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..errors import SpillwayError
from ..host_port import HostInfo, ImageRequest, JobProgress, JobResult
from ..memory.snapshot import FIGURES, MemorySnapshot
from ..session import ProfileRow, Session
from ..settings import CHOICES
from ..timing.image_record import ImageRecord
from ..timing.summary import badge_text, job_sentence
from ..words import translate
from .state import memory_state

HISTORY_SECONDS = 120.0
_HISTORY_POINTS = 240
_HISTORY_FIGURES = (
    "dedicated_used_bytes", "dedicated_process_bytes", "shared_pinned_bytes", "shared_spilled_bytes", "ram_used_bytes",
)


def host_payload(info: HostInfo) -> dict[str, Any]:
    """Who the host is, and what a person should know of it."""
    return {
        "name": info.name,
        "model": info.model,
        "device_name": info.device_name,
        "simulated": info.simulated,
        "notices": list(info.notices),
        "samplers": list(info.samplers),
        "default_width": info.default_size[0],
        "default_height": info.default_size[1],
        "makes_its_own_images": info.makes_its_own_images,
    }


def settings_payload(session: Session) -> dict[str, Any]:
    """Every setting, what each of the worded ones can be, and why this machine lacks some of it."""
    return {
        **asdict(session.settings),
        "profile": session.settings.profile.value,
        "choices": {name: list(values) for name, values in CHOICES.items()},
        "unavailable_because": {name: dict(values) for name, values in session.unavailable_choices().items()},
    }


def memory_payload(session: Session, since: float, *, recovering: bool) -> dict[str, Any]:
    """The latest snapshot, its word, the cap, and the history taken after the Unix time ``since``."""
    snapshot = session.memory()
    last = session.last_job()
    edge = session.settings.dedicated_percent / 100
    return {
        "snapshot": snapshot_payload(snapshot),
        "state": memory_state(snapshot, edge, recovering=recovering).value,
        "edge_share": edge,
        "cap_bytes": session.cap_bytes(),
        "cap_setting": {
            "cap_bytes": session.settings.cap_bytes, "cap_ram_percent": session.settings.cap_ram_percent,
        },
        "badges": session.settings.badges,
        "profile": session.settings.profile.value,
        "job_running": session.progress() is not None,
        "last_job_id": last.job_id if last else None,
        "history": history_payload(session.monitor.history(), max(since, snapshot.taken_at - HISTORY_SECONDS)),
    }


def snapshot_payload(snapshot: MemorySnapshot) -> dict[str, Any]:
    """Every figure, what follows from them, and why some are unknown."""
    return {
        "taken_at": snapshot.taken_at,
        "device_name": snapshot.device_name,
        "simulated": snapshot.simulated,
        **{name: getattr(snapshot, name) for name in FIGURES},
        "dedicated_free_bytes": snapshot.dedicated_free_bytes,
        "shared_used_bytes": snapshot.shared_used_bytes,
        "unknown_because": dict(snapshot.unknown_because),
    }


def history_payload(history: Iterable[MemorySnapshot], since: float) -> list[dict[str, Any]]:
    """The snapshots after ``since``, thinned evenly to what a plot can show; the newest is always among them."""
    wanted = [snapshot for snapshot in history if snapshot.taken_at > since]
    stride = -(-len(wanted) // _HISTORY_POINTS) or 1
    first = (len(wanted) - 1) % stride if wanted else 0
    return [
        {"taken_at": snapshot.taken_at, **{name: getattr(snapshot, name) for name in _HISTORY_FIGURES}}
        for snapshot in wanted[first::stride]
    ]


def profiles_payload(session: Session, request: ImageRequest) -> dict[str, Any]:
    """Every profile at this request, and what ``auto`` would take; a failing estimate is said, not raised."""
    rows = [_row_payload(row) for row in session.profile_rows(request)]
    try:
        choice = session.choose(request)
    except SpillwayError as error:
        auto: dict[str, Any] = {"profile": None, "reason": str(error), "estimated_dedicated_bytes": None}
    else:
        auto = {
            "profile": choice.profile.value,
            "reason": choice.reason,
            "estimated_dedicated_bytes": choice.estimated_dedicated_bytes,
        }
    settings = session.settings
    return {"profile": settings.profile.value, "spill_kind": settings.spill_kind, "rows": rows, "auto": auto}


def _row_payload(row: ProfileRow) -> dict[str, Any]:
    return {**asdict(row), "profile": row.profile.value}


def progress_payload(progress: JobProgress | None) -> dict[str, Any]:
    """The running job, or ``{"running": false}``."""
    return {"running": False} if progress is None else {"running": True, **asdict(progress)}


def last_job_payload(result: JobResult | None) -> dict[str, Any]:
    """The job that ended last, in words and record by record."""
    if result is None:
        return {"job_id": None}
    return {
        "job_id": result.job_id,
        "sentence": job_sentence(result),
        "interrupted": result.interrupted,
        "notices": list(result.notices),
        "images": [record_payload(image.record) for image in result.images],
        "given_up": [record_payload(record) for record in result.given_up],
    }


def record_payload(record: ImageRecord) -> dict[str, Any]:
    """A record with its badge and its stages."""
    return {
        **record.as_dict(),
        "badge": badge_text(record),
        "stage_seconds": dict(record.stage_seconds),
        "file_name": file_name(record.file_path),
    }


def file_name(path: str | None) -> str | None:
    """The last part of a path of either kind of system."""
    return path.replace("\\", "/").rsplit("/", 1)[-1] if path else None


_SENTENCES = frozenset({
    "badge", "device_name", "error", "message", "note", "notices", "reason", "rungs", "sentence", "summary",
    "trade_off", "unavailable_because", "unknown_because",
})
"""The keys of every answer that hold sentences of ours, each alone, in a list or in an object."""


def said_in(language: str, content: Any, *, sentences: bool = False) -> Any:
    """The same values, the sentences among them in that language."""
    if isinstance(content, dict):
        return {
            key: said_in(language, value, sentences=sentences or key in _SENTENCES) for key, value in content.items()
        }
    if isinstance(content, list):
        return [said_in(language, value, sentences=sentences) for value in content]
    return translate(content, language) if sentences and isinstance(content, str) else content


def error_payload(error: SpillwayError) -> dict[str, Any]:
    """One sentence, and the technical line under it."""
    return {"error": str(error), "detail": error.detail}
