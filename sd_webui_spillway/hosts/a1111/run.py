"""One call of the webui's ``process_images_inner`` as one job: its batches, its images, what became of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ...errors import SpillwayError
from ...host_port import DeliveredImage, JobResult
from ...memory.monitor import Monitor
from ...session import RunningJob
from ...timing.image_record import ImageRecord
from .asked import final_size
from .engine_port import Engine, JobPlacement
from .infotext import ID_KEY, ID_LENGTH, KEY, entry_text
from .records import Batch, BatchFacts
from .rescue import call_with_room
from .unharmed import Unharmed
from .warmth import Warmth

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class NothingMadeError(SpillwayError):
    """Not one image of a request could be made."""


class Run:
    """Everything is called from the thread that runs the job."""

    def __init__(
        self,
        p: Any,
        job: RunningJob,
        placement: JobPlacement,
        engine: Engine,
        monitor: Monitor,
        warmth: Warmth,
        unharmed: Unharmed,
        *,
        infotext: bool,
    ) -> None:
        """
        Args:
            p: the webui's ``StableDiffusionProcessing``.
            job: the session's.
            placement: how the models lie for it.
            engine: who placed them.
            monitor: for the peak of shared memory.
            warmth: whether the model has run since it was loaded or moved.
            unharmed: keeps what fails here from the webui.
            infotext: whether an entry is written into each image's infotext.
        """
        self.p = p
        self._job = job
        self._placement = placement
        self._engine = engine
        self._monitor = monitor
        self._warmth = warmth
        self._unharmed = unharmed
        self._guarding = 0
        self._joined = 0
        self._described: int | None = None
        self._save_before: bool | None = None
        self._delivered: list[DeliveredImage] = []
        self._given_up: list[ImageRecord] = []
        self._peaks = ExitStack()
        self._shared_peak = self._peaks.enter_context(monitor.watch())
        self.outcomes: dict[tuple[int, int], bool] = {}
        """By iteration and place in the batch, in the order in which the webui lists its images: was it made?"""
        self.notices: list[str] = list(placement.notices)
        self.said: list[str] = []
        """The sentences of :attr:`notices` that a person should read beside the images."""
        self.losses: list[str] = []
        """Those of them that name images which could not be made."""
        self.stopped = False
        """The user ended a batch early: interrupt or skip."""
        self.batch = Batch(job.job_id, placement, engine)
        if infotext:
            p.extra_generation_params.update({KEY: self._entry, ID_KEY: self._id_entry})

    @property
    def observer(self) -> Any:
        return self._job.tracker

    def leads(self, p: Any) -> bool:
        """Whether this object is the job's own, and no script's request inside it is at work."""
        return p is self.p and not self._joined

    @property
    def guarding(self) -> bool:
        """Whether a call of :meth:`guarded` is open."""
        return self._guarding > 0

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Around a request that a script makes inside this job: its time counts for the image being made."""
        self._joined += 1
        try:
            yield
        finally:
            self._joined -= 1

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.observer.stage(name)
        with self.batch.stage(name):
            yield

    def begin_iteration(self) -> None:
        """The webui begins the iteration ``p.iteration``; called again inside it does nothing."""
        p = self.p
        if self.batch.iteration == p.iteration:
            return
        with self._unharmed("The records of a batch are not complete"):
            if self.batch.iteration is not None:
                self._end_batch()
                self.batch = Batch(
                    self._job.job_id, self._placement, self._engine, self.batch.left_over_seconds(),
                    len(self._engine.rungs_taken()),
                )
            self.batch.warm_up = not self._warmth.is_warm(p, self._engine)
            self.observer.batch(p.iteration)
        self.batch.iteration = p.iteration

    def _end_batch(self) -> None:
        if self._save_before is not None:
            self.p.do_not_save_samples, self._save_before = self._save_before, None
        batch = self.batch
        if batch.finishing and batch.failure is None:
            for place in range(batch.size):
                self.finish(place, None)
            self._warmth.ran(self.p, self._engine)

    def end_shared(self) -> None:
        """The pixels of this batch are there. A second time only takes note of images that a script has added."""
        seeds = self.p.seeds if self.batch.iteration is not None else self.p.all_seeds[: self.p.batch_size]
        if self.batch.facts is not None and len(self.batch.facts.seeds) == len(seeds):
            return
        with self._unharmed("The records of a batch are not complete"):
            self.batch.end_shared(self._facts(seeds))

    def _facts(self, seeds: list[int]) -> BatchFacts:
        p = self.p
        width, height = final_size(p)
        return BatchFacts(
            model=p.sd_model_name or "unknown",
            width=width,
            height=height,
            steps=p.steps,
            sampler=p.sampler_name or "default",
            seeds=tuple(int(seed) for seed in seeds),
        )

    def guarded(
        self, what: str, call: Callable[[], _T], restore: Callable[[], None], instead: Callable[[], _T] | None = None
    ) -> _T:
        """``call()``, with room made where it runs out of memory. What then still fails is given up for this batch:
        ``instead()`` is returned in its place, unless an outer call of this kind will see to it."""
        outermost = instead is not None and not self._guarding and not self._joined
        self._guarding += 1
        try:
            return call_with_room(call, what, self._engine.make_room, restore)
        except SpillwayError as error:
            if not outermost or instead is None:
                raise
            sentence = str(error)
        finally:
            self._guarding -= 1
        restore()
        self.give_up(sentence)
        return instead()

    def give_up(self, because: str) -> None:
        """The images of this batch cannot be made; the webui goes on with dark ones, which it does not save."""
        self.batch.failure = because
        if self._save_before is None:
            self._save_before = self.p.do_not_save_samples
        self.p.do_not_save_samples = True
        self.end_shared()
        self._record_given_up(because)
        self.losses.append(f"{self._which()} could not be made: {because}")
        self.say(self.losses[-1])

    def _record_given_up(self, because: str) -> None:
        with self._unharmed("An image that was given up is not in the log"):
            for place in range(self.batch.size):
                if not self.batch.values(place).recorded:
                    record = self.batch.record(place, given_up_because=because)
                    self._given_up.append(self.observer.image(record))

    def _which(self) -> str:
        count, size = len(self.p.all_seeds), self.batch.size
        first = (self.batch.iteration or 0) * self.p.batch_size + 1
        return f"Image {first} of {count}" if size == 1 else f"Images {first} to {first + size - 1} of {count}"

    def say(self, sentence: str) -> None:
        """For the person who asked: under the gallery, in the API's answer and in the job's result."""
        logger.warning("%s", sentence)
        self.p.comment(sentence)
        if sentence not in self.said:
            self.said.append(sentence)
            self.notices.append(sentence)

    @contextmanager
    def describing(self, place: int | None) -> Iterator[None]:
        """Around the making of an infotext: of the image at this place of the batch, or of something else."""
        before, self._described = self._described, place
        try:
            yield
        finally:
            self._described = before
        if place is not None:
            self.outcomes[self.batch.iteration or 0, place] = self.batch.failure is None

    def finish(self, place: int, file_path: str | None) -> None:
        """This image of the batch ended, saved or not. A second time does nothing."""
        if self.batch.failure is not None or self.batch.values(place).recorded:
            return
        with self._unharmed("A finished image is not in the log"):
            record = self.observer.image(self.batch.record(place, file_path=file_path))
            self._delivered.append(DeliveredImage(record, Path(file_path or "")))

    def _entry(self, **webui: Any) -> str | None:
        place = self._described
        if place is None or self.batch.failure is not None:
            return None
        values = self.batch.values(place)
        if not values.recorded:
            with self._unharmed("The infotext of an image lacks what it took"):
                values.text = entry_text(
                    self._engine.profile_in_force(),
                    self._engine.resident_percent(),
                    self.batch.seconds_so_far(),
                    self.batch.peak_bytes(),
                    self._shared_peak.peak("shared_used_bytes"),
                    simulated=self._engine.simulated,
                )
        return values.text

    def _id_entry(self, **webui: Any) -> str | None:
        place = self._described
        if place is None or self.batch.failure is not None:
            return None
        return self.batch.values(place).record_id[:ID_LENGTH]

    def end(self, error: BaseException | None, *, interrupted: bool) -> None:
        """The webui's function returned, or raised ``error``."""
        self._peaks.close()
        p = self.p
        if error is None:
            self._end_batch()
        elif isinstance(error, SpillwayError) and self.batch.failure is None and p.all_seeds:
            self.end_shared()
            self._record_given_up(str(error))
            self.notices.append(str(error))
        if self._save_before is not None:
            p.do_not_save_samples = self._save_before
        for key, entry in ((KEY, self._entry), (ID_KEY, self._id_entry)):
            if p.extra_generation_params.get(key) == entry:
                del p.extra_generation_params[key]
        self._job.result = JobResult(
            self._job.job_id,
            tuple(self._delivered),
            tuple(self._given_up),
            tuple(self.notices),
            interrupted=interrupted or self.stopped,
        )

    @property
    def nothing_made(self) -> bool:
        """Not one image, and not because the user stopped it."""
        return bool(self.losses) and not any(self.outcomes.values())
