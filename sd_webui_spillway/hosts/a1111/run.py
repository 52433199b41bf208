"""One call of the webui's ``process_images_inner`` as one job: its batches, its images, what became of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from .losses import Told
from .records import Batch, BatchFacts
from .rescue import call_with_room
from .unharmed import Unharmed
from .warmth import Warmth

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


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
        self._delivered: list[DeliveredImage] = []
        self._given_up: list[ImageRecord] = []
        self._peaks = ExitStack()
        self._shared_peak = self._peaks.enter_context(monitor.watch())
        self.outcomes: dict[tuple[int, int], bool] = {}
        """By iteration and place in the batch, in the order in which the webui lists its images: was it made?"""
        self.told = Told(p, placement.notices)
        self.images: list[Any] = []
        """What the webui's answer lists of it, grids apart and without what could not be made."""
        self.infotexts: list[str] = []
        """One for each image."""
        self.stopped = False
        """The user ended a batch early: interrupt or skip."""
        self.batch = self._new_batch()
        if infotext:
            p.extra_generation_params.update({KEY: self._entry, ID_KEY: self._id_entry})

    @property
    def observer(self) -> Any:
        return self._job.tracker

    def leads(self, p: Any) -> bool:
        """Whether this object is the job's own, and no script's request inside it is at work."""
        return p is self.p and not self._joined

    @property
    def finishing_lost(self) -> bool:
        """Whether the image that the webui is finishing is one that could not be made."""
        return self.batch.finishing and getattr(self.p, "batch_index", None) in self.batch.lost

    @property
    def between_iterations(self) -> bool:
        """Whether the webui has ended one iteration and not begun the next."""
        begun = self.batch.iteration
        return self.leads(self.p) and not self._guarding and begun is not None and self.p.iteration > begun

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
                self.batch = self._new_batch(self.batch.left_over_seconds())
            self.batch.warm_up = not self._warmth.is_warm(p, self._engine)
            self.observer.batch(p.iteration)
        self.batch.iteration = p.iteration

    def _new_batch(self, carried_seconds: float = 0.0) -> Batch:
        return Batch(self._job.job_id, self._placement, self._engine, carried_seconds)

    def _end_batch(self) -> None:
        batch = self.batch
        if batch.finishing and not self.all_lost:
            for place in range(batch.size):
                self.finish(place, None)
            self._warmth.ran(self.p, self._engine)

    @property
    def seeds(self) -> Sequence[int]:
        """Of the batch; of the first one while none has begun."""
        p = self.p
        seeds: Sequence[int] = p.seeds if self.batch.iteration is not None else p.all_seeds[: p.batch_size]
        return seeds

    def end_shared(self) -> None:
        """The pixels of this batch are there, or will never be. A second time only takes note of images that a script
        has added."""
        seeds = self.seeds
        if self.batch.facts is not None and len(self.batch.facts.seeds) == len(seeds):
            return
        with self._unharmed("The records of a batch are not complete"):
            self.batch.end_shared(self._facts(seeds))
        self._record_lost()

    def _facts(self, seeds: Sequence[int]) -> BatchFacts:
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
        self,
        what: str,
        call: Callable[[], _T],
        restore: Callable[[], None],
        instead: Callable[[str], _T] | None = None,
    ) -> _T:
        """``call()``; where it runs out of memory, once more after room was made and ``restore()`` called. What then
        still fails is raised, or is up to ``instead``, which is told why, unless an outer call of this kind will see
        to it."""
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
        return instead(sentence)

    def report(self, words: str) -> None:
        """Something was done to survive, beside what the guard does."""
        self._engine.report(words)

    def give_up(self, because: str) -> None:
        """No image of this batch can be made."""
        self.lose(dict.fromkeys(range(len(self.seeds)), because))

    def lose(self, reasons: Mapping[int, str]) -> None:
        """The images at these places of the batch cannot be made. The webui goes on with pictures in their places,
        which are neither saved nor shown."""
        self.batch.lost.update(reasons)
        first = (self.batch.iteration or 0) * self.p.batch_size
        self.told.lost({first + place: because for place, because in reasons.items()})
        if self.all_lost:
            self.end_shared()

    @property
    def all_lost(self) -> bool:
        """Whether no image of this batch can be made."""
        return bool(self.batch.lost) and len(self.batch.lost) >= len(self.seeds)

    def lose_rest(self, because: str) -> None:
        """The iteration that the webui is about to begin cannot be made, nor any after it."""
        p = self.p
        self._end_batch()
        for iteration in range(p.iteration, p.n_iter):
            self.batch = self._new_batch()
            self.batch.iteration = iteration
            seeds = p.all_seeds[iteration * p.batch_size : (iteration + 1) * p.batch_size]
            self.batch.lost = dict.fromkeys(range(len(seeds)), because)
            self.batch.end_shared(self._facts(seeds))
            self._record_lost()
        self.told.lost(dict.fromkeys(range(p.iteration * p.batch_size, len(p.all_seeds)), because))

    def _record_lost(self) -> None:
        with self._unharmed("An image that was given up is not in the log"):
            for place in sorted(self.batch.lost):
                if not self.batch.values(place).recorded:
                    self._given_up.append(self.observer.image(self.batch.record(place)))

    @contextmanager
    def describing(self, place: int | None) -> Iterator[None]:
        """Around the making of an infotext: of the image at this place of the batch, or of something else."""
        before, self._described = self._described, place
        try:
            yield
        finally:
            self._described = before
        if place is not None:
            self.outcomes[self.batch.iteration or 0, place] = place not in self.batch.lost

    def finish(self, place: int, file_path: str | None) -> None:
        """This image of the batch ended, saved or not. A second time does nothing."""
        if place in self.batch.lost or self.batch.values(place).recorded:
            return
        with self._unharmed("A finished image is not in the log"):
            record = self.observer.image(self.batch.record(place, file_path))
            self._delivered.append(DeliveredImage(record, Path(file_path) if file_path else None))

    def _entry(self, **webui: Any) -> str | None:
        place = self._described
        if place is None or place in self.batch.lost:
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
        if place is None or place in self.batch.lost:
            return None
        return self.batch.values(place).record_id[:ID_LENGTH]

    def end(self, error: BaseException | None, *, interrupted: bool) -> None:
        """The webui's function returned, or raised ``error``."""
        self._peaks.close()
        p = self.p
        if error is None:
            self._end_batch()
        elif isinstance(error, SpillwayError) and not self.batch.lost and p.all_seeds:
            begun = self.batch.iteration is not None
            self.batch.lost = dict.fromkeys(range(len(self.seeds)), str(error))
            self.end_shared()
            self._record_lost()
            if begun:
                self.told.notices.append(str(error))
            else:
                self.told.lost(dict.fromkeys(range(len(p.all_seeds)), str(error)))
        for key, entry in ((KEY, self._entry), (ID_KEY, self._id_entry)):
            if p.extra_generation_params.get(key) == entry:
                del p.extra_generation_params[key]
        self._job.result = JobResult(
            self._job.job_id,
            tuple(self._delivered),
            tuple(self._given_up),
            tuple(self.told.notices),
            interrupted=interrupted or self.stopped,
        )

    @property
    def nothing_made(self) -> bool:
        """Not one image, and not because the user stopped it."""
        return bool(self.told.losses) and not any(self.outcomes.values())
