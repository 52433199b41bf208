"""The engine standing alone: a diffusers pipeline under our placements and guard."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ..errors import StorageError
from ..host_port import Choice, DeliveredImage, HostInfo, ImageRequest, JobObserver, JobResult, Prediction
from ..memory.shared_ledger import SharedLedger
from ..memory.snapshot import MemoryProvider
from ..models import LoadedModel
from ..placement.card import Card
from ..placement.placed_model import PlacedModel
from ..placement.profile import NEED_LINK, Profile
from ..planning.footprint import CUDA_OVERHEAD, AllocatorOverhead
from ..recovery.guard import Guard, LadderExhaustedError
from ..recovery.ladder import Rung, RungKind
from ..timing.image_record import ImageRecord
from .card_memory import CardMemory
from .diffusers_batch import Batch, InterruptedBatchError, JobFacts
from .diffusers_model import ExecutionDevice, PipelineShapes, components_of, image_to_image
from .footprint_meter import FootprintMeter
from .image_files import check_writable
from .placer import Placer
from .samplers import SAMPLER_NAMES, make_scheduler

logger = logging.getLogger(__name__)


class DiffusersHost:
    """Fulfils :class:`~..host_port.Host` for one loaded model on one card."""

    def __init__(self, model: LoadedModel, card: Card, ledger: SharedLedger | None = None) -> None:
        """``ledger`` is where pinned bytes are reserved; by default one of the host's own, with the default cap."""
        self._model = model
        self._ledger = ledger or SharedLedger()
        self._card = card
        self._pipeline: Any = model.pipeline
        self._pipeline.set_progress_bar_config(disable=True)
        self._scheduler = self._pipeline.scheduler
        components = components_of(self._pipeline)
        overhead = AllocatorOverhead() if card.simulated else CUDA_OVERHEAD
        shapes = PipelineShapes(self._pipeline)
        meter = FootprintMeter(components, shapes, overhead, self._ledger if card.no_link_because is None else None)
        self._placed = PlacedModel(components, card, self._ledger)
        self._guard = Guard(
            self._placed, on_rung=self._on_rung, whereabouts=self._whereabouts,
            takes_step_down=lambda: self._observer is not None and self._observer.takes_step_down(),
        )
        self._guard.install()
        self._placer = Placer(self._placed, self._guard, meter, self._report)
        self._devices = [ExecutionDevice(self._pipeline, card.device)]
        self._image_to_image: Any = None
        self._own_profile: Profile | None = None
        self._warm = False
        self._stepped_down = False
        self._observer: JobObserver | None = None
        self._batch: Batch | None = None
        self._rungs: list[str] = []

    def info(self) -> HostInfo:
        notices = list(self._model.notices)
        if self._card.simulated:
            notices.append(f"There is no GPU here; memory is counted on a {self._card.label}.")
        return HostInfo(
            name="standalone",
            model=self._model.name,
            device_name=self._card.label,
            simulated=self._card.simulated,
            notices=tuple(notices),
            samplers=SAMPLER_NAMES,
            default_size=self._model.default_size,
            unavailable_profiles=dict.fromkeys(NEED_LINK, reason) if (reason := self._card.no_link_because) else {},
        )

    def memory_providers(self) -> tuple[MemoryProvider, ...]:
        return (CardMemory(self._card, self._ledger),)

    def turn(self) -> AbstractContextManager[None]:
        return nullcontext()  # nobody else has jobs here

    def switch(self, profile: Profile) -> None:
        if profile is Profile.AUTO:
            self._own_profile = None
            return
        self._warm = self._warm and self._placed.profile is profile
        self._placer.switch(profile)
        self._own_profile = profile

    def predict(self, request: ImageRequest) -> Mapping[Profile, Prediction]:
        return self._placer.predict(request)

    def choose(self, request: ImageRequest) -> Choice:
        chosen = self._placer.choose(request)
        return Choice(chosen.profile, chosen.reason, chosen.peak_bytes)

    def generate(
        self, request: ImageRequest, profile: Profile, job_id: str, folder: Path, observer: JobObserver
    ) -> JobResult:
        check_writable(folder)
        self._observer, self._rungs, self._stepped_down = observer, [], False
        plan = self._placer.plan_job(request, profile)
        facts = JobFacts(
            job_id, "standalone", self._model.name, request, profile.value, folder, plan.estimated_dedicated_bytes
        )
        try:
            before = self._placed.profile
            placed = self._placer.begin_job(plan, request)
            self._warm = self._warm and placed is before
            observer.profile(placed)
            with self._guard.job():
                return self._run(facts, observer, list(plan.notices))
        finally:
            self._observer = self._batch = None
            self._warm = self._warm and not self._stepped_down
            if self._own_profile is not None:
                self._warm = self._warm and self._placed.profile is self._own_profile
                self._placer.try_place(self._own_profile)

    def close(self) -> None:
        self._guard.undo()
        self._placed.undo()
        for device in self._devices:
            device.undo()
        self._pipeline.scheduler = self._scheduler
        self._card.close()

    def _run(self, facts: JobFacts, observer: JobObserver, notices: list[str]) -> JobResult:
        request = facts.request
        delivered: dict[int, DeliveredImage] = {}
        given_up: list[ImageRecord] = []
        unsaved_count = 0
        for first in range(0, request.image_count, request.batch_size):
            if observer.stop_requested():
                break
            indices = range(first, first + request.batch_size)
            try:
                self._deliver(facts, indices, observer, delivered, given_up, notices)
            except StorageError as error:
                if not delivered:
                    raise
                notices.append(f"The job ended early: {error}")
                unsaved_count = 1
                break
        interrupted = len(delivered) + len(given_up) < request.image_count
        if not delivered and given_up:
            raise LadderExhaustedError(f"No image could be made: {given_up[0].message}")
        return JobResult(
            facts.job_id, tuple(delivered.values()), tuple(given_up), tuple(notices), interrupted, unsaved_count
        )

    def _deliver(
        self,
        facts: JobFacts,
        indices: Sequence[int],
        observer: JobObserver,
        delivered: dict[int, DeliveredImage],
        given_up: list[ImageRecord],
        notices: list[str],
    ) -> None:
        """Make these images together; where that fits in no way, each on its own; give up only on those that fail."""
        observer.batch(indices[0] // facts.request.batch_size)
        rungs_before = len(self._rungs)
        batch = Batch(
            facts,
            self._pipeline_for(facts.request),
            make_scheduler(facts.request.sampler, self._scheduler),
            self._card,
            observer,
            indices,
            warm_up=not self._warm,
            profile_used=lambda: str(self._placed.profile),
            rungs_taken=lambda: tuple(self._rungs[rungs_before:]),
        )
        self._batch = batch
        failure = _try_batch(batch, delivered)
        notices.extend(batch.notices)
        self._warm = True
        if failure is None:
            return
        if len(indices) == 1:
            given_up.append(observer.image(batch.given_up(failure)))
            return
        for index in indices:
            if index not in delivered and not observer.stop_requested():
                self._deliver(facts, [index], observer, delivered, given_up, notices)

    def _pipeline_for(self, request: ImageRequest) -> Any:
        if request.init_image is None:
            return self._pipeline
        if self._image_to_image is None:
            self._image_to_image = image_to_image(self._pipeline)
            self._image_to_image.set_progress_bar_config(disable=True)
            self._devices.append(ExecutionDevice(self._image_to_image, self._card.device))
        return self._image_to_image

    def _on_rung(self, rung: Rung) -> None:
        self._report(rung.words)
        self._stepped_down |= rung.kind is RungKind.SMALLER_PLACEMENT
        if self._observer is not None and self._placed.profile is not None:
            self._observer.profile(self._placed.profile)

    def _report(self, words: str) -> None:
        self._rungs.append(words)
        if self._observer is not None:
            self._observer.rung(words)

    def _whereabouts(self) -> str:
        return self._batch.whereabouts() if self._batch else ""


def _try_batch(batch: Batch, delivered: dict[int, DeliveredImage]) -> str | None:
    """Run a batch; why it could not be finished, or ``None`` if it was, or was stopped."""
    try:
        batch.run(delivered.__setitem__)
    except LadderExhaustedError as error:
        return str(error)
    except InterruptedBatchError:
        return None
    return None
