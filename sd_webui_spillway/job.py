"""The running job as a person sees it: how far, how long still, and what was done to survive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .host_port import ImageRequest, JobProgress
from .placement.profile import Profile
from .timing.image_record import ImageRecord


class JobTracker:
    """Follows one job as its host's :class:`~.host_port.JobObserver`. Any thread may read; the job's thread writes."""

    def __init__(
        self,
        job_id: str,
        request: ImageRequest,
        profile: Profile,
        on_image: Callable[[ImageRecord], ImageRecord],
        on_batch: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job_id = job_id
        self._request = request
        self._on_image = on_image
        self._on_batch = on_batch
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._step_down = threading.Event()
        self._started = clock()
        self._stage = "prepare"
        self._step = 0
        self._step_count = request.steps
        self._profile = profile
        self._done = 0
        self._steps_done = 0
        self._first_step_at: float | None = None
        self._rungs: list[str] = []

    def batch(self, index: int) -> None:
        with self._lock:
            self._stage, self._step = "encode", 0
        self._on_batch()

    def stage(self, name: str) -> None:
        with self._lock:
            self._stage = name

    def step(self, index: int, count: int) -> None:
        with self._lock:
            self._stage, self._step, self._step_count = "sample", index, count
            self._steps_done += 1
            if self._first_step_at is None:
                self._first_step_at = self._clock()

    def rung(self, words: str) -> None:
        with self._lock:
            self._rungs.append(words)

    def profile(self, profile: Profile) -> None:
        with self._lock:
            self._profile = profile

    def image(self, record: ImageRecord) -> ImageRecord:
        with self._lock:
            self._done += 1
        return self._on_image(record)

    def stop_requested(self) -> bool:
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Ask the host to end after the step it is in; what is finished is kept."""
        self._stop.set()

    def takes_step_down(self) -> bool:
        asked = self._step_down.is_set()
        self._step_down.clear()
        return asked

    def request_step_down(self) -> None:
        """Ask the host to go on with less on the card, from the next call of a component on."""
        self._step_down.set()

    def progress(self) -> JobProgress:
        with self._lock:
            elapsed = self._clock() - self._started
            return JobProgress(
                job_id=self.job_id,
                image_index=self._done,
                image_count=self._request.image_count,
                stage=self._stage,
                step=self._step,
                step_count=self._step_count,
                profile=self._profile.value,
                elapsed_seconds=elapsed,
                remaining_seconds=self._remaining(elapsed),
                seconds_per_image=elapsed / self._done if self._done else None,
                rungs=tuple(self._rungs),
            )

    def _remaining(self, elapsed: float) -> float | None:
        """From finished images where there are any, else from the steps of the first batch."""
        if self._done:
            return elapsed / self._done * (self._request.image_count - self._done)
        if self._first_step_at is None or self._steps_done < 2:
            return None
        per_step = (self._clock() - self._first_step_at) / (self._steps_done - 1)
        return max(0.0, per_step * (self._step_count * self._request.batch_count - self._steps_done))
