"""What one image cost: one frozen record per image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum

STAGES = ("encode", "sample", "hires", "decode", "save")


class Outcome(str, Enum):
    """How an image ended."""

    DELIVERED = "delivered"
    GIVEN_UP = "given up"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class ImageRecord:
    """One image of one job. Seconds are this image's share: what a batch did together is divided by its size.

    ``None`` is unknown, or, for a stage, "did not happen".
    """

    record_id: str
    """32 hexadecimal digits, unique over all machines."""
    job_id: str
    started_at: float
    """Unix time in seconds."""
    host: str
    model: str
    device_name: str
    simulated: bool
    width: int
    height: int
    steps: int
    sampler: str
    seed: int
    batch_size: int
    batch_index: int
    """This image's place in its batch, from 0."""
    profile_asked: str
    profile_used: str
    """The profile in use when the image was finished."""
    encode_seconds: float | None
    sample_seconds: float | None
    hires_seconds: float | None
    decode_seconds: float | None
    save_seconds: float | None
    total_seconds: float
    """Measured by a clock of its own, not as the sum of the stages."""
    steps_per_second: float | None
    """Steps of the whole batch per second of sampling."""
    warm_up: bool
    """The first image after a model was loaded or moved: slower than the ones that follow."""
    peak_dedicated_bytes: int | None
    peak_shared_bytes: int | None
    estimated_dedicated_bytes: int | None
    """The peak that was predicted before the job began."""
    moved_bytes: int | None
    """Weights copied between system memory and the card for this image's batch, divided by its size."""
    rungs: tuple[str, ...]
    """What the guard did so that this image survived, in words and in order."""
    outcome: Outcome
    message: str | None
    file_path: str | None

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        """The stages that happened, in order."""
        named = ((stage, getattr(self, f"{stage}_seconds")) for stage in STAGES)
        return {stage: seconds for stage, seconds in named if seconds is not None}

    def as_dict(self) -> dict[str, object]:
        """Plain values under unit-named keys, for JSON and CSV."""
        return {**asdict(self), "rungs": list(self.rungs), "outcome": self.outcome.value}


COLUMNS = tuple(f.name for f in fields(ImageRecord))
