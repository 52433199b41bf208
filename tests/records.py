"""Image records for tests."""

from __future__ import annotations

from typing import Any

from sd_webui_spillway.timing import ImageRecord, Outcome


def make_record(number: int = 0, **changes: Any) -> ImageRecord:
    """A delivered image; ``number`` sets its id, time, seed and file."""
    values: dict[str, Any] = {
        "record_id": f"{number:032x}", "job_id": f"job-{number // 8}", "started_at": 1.7e9 + number, "host": "tests",
        "model": "tiny", "device_name": "a card", "simulated": False, "width": 512, "height": 512, "steps": 20,
        "sampler": "default", "seed": number, "batch_size": 4, "batch_index": number % 4, "profile_asked": "auto",
        "profile_used": "medvram", "encode_seconds": 0.1, "sample_seconds": 1.5, "hires_seconds": None,
        "decode_seconds": 0.2, "save_seconds": 0.04, "total_seconds": 1.84, "steps_per_second": 10.9, "warm_up": False,
        "peak_dedicated_bytes": 3_328_599_654, "peak_shared_bytes": None, "estimated_dedicated_bytes": None,
        "moved_bytes": 0, "rungs": (), "outcome": Outcome.DELIVERED, "message": None,
        "file_path": f"/pictures/{number:05d}.png",
    }
    return ImageRecord(**{**values, **changes})
