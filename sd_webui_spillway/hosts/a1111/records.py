"""One batch of the webui as image records: what was shared is divided, what was one image's own is not."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...timing.image_record import ImageRecord, Outcome
from ...timing.stopwatch import Stopwatch
from .engine_port import Engine, JobPlacement

HOST_NAME = "AUTOMATIC1111"


@dataclass(frozen=True)
class BatchFacts:
    """What the webui says of a batch once its work is done."""

    model: str
    width: int
    """Of the finished image, after hires fix."""
    height: int
    steps: int
    sampler: str
    seeds: tuple[int, ...]


@dataclass
class Steps:
    """Where in the sampling a batch is."""

    made: int = 0
    count: int = 0
    first_pass: int = 0
    """Steps of the first pass, as :attr:`ImageRecord.steps_per_second` counts them."""
    running: bool = False
    stopped_at: int | None = None
    """Steps made when the user stopped the sampling."""


@dataclass
class Values:
    """What an image of this batch is known by."""

    record_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    text: str | None = None
    """The last value of its infotext's entry."""
    recorded: bool = False


class Batch:
    """Times one iteration of the webui's loop.

    Encoding, sampling and decoding are the whole batch's, and each image is charged an equal part; what comes after
    (face restoration, scripts, saving) is each image's own, from the end of the image before to its own end.
    """

    def __init__(self, job_id: str, placement: JobPlacement, engine: Engine, carried_seconds: float = 0.0) -> None:
        """``carried_seconds`` is what passed for this batch before it was known of."""
        self._job_id = job_id
        self._placement = placement
        self._engine = engine
        self._carried_seconds = carried_seconds
        self._started_at = time.time()
        self._shared = self._stopwatch()
        self._own: Stopwatch | None = None
        self._shared_seconds = 0.0
        self._shared_peak: int | None = None
        self._shared_moved = 0
        self._moved_before = engine.moved_bytes()
        self._rungs_before = len(engine.rungs_taken())
        self._shared_rungs: tuple[str, ...] = ()
        self._values: dict[int, Values] = {}
        self.iteration: int | None = None
        self.facts: BatchFacts | None = None
        """Known from the end of the shared work on."""
        self.lost: dict[int, str] = {}
        """Why an image cannot be made, in one sentence, by its place."""
        self.steps = Steps()
        self.warm_up = False
        engine.reset_peak()

    def _stopwatch(self) -> Stopwatch:
        return Stopwatch(synchronize=self._engine.synchronize)

    @property
    def size(self) -> int:
        return max(1, len(self.facts.seeds)) if self.facts else 1

    @property
    def finishing(self) -> bool:
        """The shared work is done; images are finished one by one."""
        return self._own is not None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what is done inside for this stage: of the batch, or of the image being finished."""
        with (self._own or self._shared).stage(name):
            yield

    def end_shared(self, facts: BatchFacts) -> None:
        """What follows is each image's own. A second time only the facts are taken anew."""
        self.facts = facts
        if self._own is not None:
            return
        self._shared_seconds = self._shared.elapsed() + self._carried_seconds
        self._shared_peak = self._engine.peak_bytes()
        self._shared_moved = self._engine.moved_bytes() - self._moved_before
        self._shared_rungs = self._engine.rungs_taken()[self._rungs_before :]
        self._next_image()

    def _next_image(self) -> None:
        self._own = self._stopwatch()
        self._moved_before = self._engine.moved_bytes()
        self._rungs_before = len(self._engine.rungs_taken())
        self._engine.reset_peak()

    def left_over_seconds(self) -> float:
        """What passed since the last image ended."""
        return self._own.elapsed() if self._own else 0.0

    def values(self, place: int) -> Values:
        return self._values.setdefault(place, Values())

    def seconds_so_far(self) -> float:
        """Of the image being finished."""
        return self._shared_seconds / self.size + (self._own.elapsed() if self._own else 0.0)

    def peak_bytes(self) -> int | None:
        """On the card, for the image being finished; ``None`` is unknown."""
        peaks = [peak for peak in (self._shared_peak, self._engine.peak_bytes()) if peak is not None]
        return max(peaks, default=None)

    def record(self, place: int, file_path: str | None = None) -> ImageRecord:
        """The record of the image that ended just now, made or lost; the next one's own time begins.

        ``place`` is its place in the batch. The peak of shared memory is left to the session.
        """
        facts = self.facts
        if facts is None or self._own is None:
            raise ValueError("the shared work of this batch has not ended")
        values, lost_because = self.values(place), self.lost.get(place)
        values.recorded = True
        sampled = self._shared.seconds.get("sample")
        record = ImageRecord(
            record_id=values.record_id,
            job_id=self._job_id,
            started_at=self._started_at,
            host=HOST_NAME,
            model=facts.model,
            device_name=self._engine.device_label,
            simulated=self._engine.simulated,
            width=facts.width,
            height=facts.height,
            steps=facts.steps if self.steps.stopped_at is None else self.steps.stopped_at,
            sampler=facts.sampler,
            seed=facts.seeds[place],
            batch_size=self.size,
            batch_index=place,
            profile_asked=self._placement.profile_asked,
            profile_used=self._engine.profile_in_force(),
            encode_seconds=self._charged("encode"),
            sample_seconds=self._charged("sample"),
            hires_seconds=self._charged("hires"),
            decode_seconds=self._charged("decode"),
            save_seconds=self._own.seconds.get("save"),
            total_seconds=self.seconds_so_far(),
            steps_per_second=(self.steps.first_pass / sampled) if sampled and self.steps.first_pass else None,
            warm_up=self.warm_up,
            peak_dedicated_bytes=self.peak_bytes(),
            peak_shared_bytes=None,
            estimated_dedicated_bytes=self._placement.estimated_dedicated_bytes,
            moved_bytes=self._shared_moved // self.size + self._engine.moved_bytes() - self._moved_before,
            rungs=self._shared_rungs + self._engine.rungs_taken()[self._rungs_before :],
            outcome=Outcome.DELIVERED if lost_because is None else Outcome.GIVEN_UP,
            message=lost_because or self._stopped(),
            file_path=file_path,
        )
        self._next_image()
        return record

    def _charged(self, stage: str) -> float | None:
        """This image's part of what the batch did, and what a script did in this stage for it alone."""
        shared, own = self._shared.seconds.get(stage), self._own.seconds.get(stage) if self._own else None
        if shared is None and own is None:
            return None
        return (shared or 0.0) / self.size + (own or 0.0)

    def _stopped(self) -> str | None:
        made = self.steps.stopped_at
        return None if made is None else f"Stopped by the user after {made} of {self.steps.count} steps."
