"""AUTOMATIC1111 as a host: what its session and the watch over its jobs ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...errors import UnavailableError
from ...host_port import Choice, HostInfo, ImageRequest, JobObserver, JobResult, Prediction
from ...memory.shared_ledger import SharedLedger
from ...memory.snapshot import MemoryProvider, Reading
from ...placement.card import Card
from ...placement.profile import NEED_LINK, PROFILES, Profile
from ..card_memory import CardMemory
from .model_table import JobPlacement, ModelTable, current_model, default_request

NAME = "AUTOMATIC1111"


class A1111Host:
    """Fulfils :class:`~...host_port.Host` and :class:`~.engine_port.Engine` over the table of loaded checkpoints."""

    def __init__(self, models: ModelTable, ledger: SharedLedger) -> None:
        self._models = models
        self._ledger = ledger

    def info(self) -> HostInfo:
        model = current_model()
        checkpoint = getattr(model, "sd_checkpoint_info", None)
        size = default_request(model)
        return HostInfo(
            name=NAME,
            model=str(checkpoint.name_for_extra) if checkpoint is not None else "no checkpoint yet",
            device_name=self.device_label,
            simulated=self.simulated,
            notices=self._notices(),
            default_size=(size.width, size.height),
            unavailable_profiles=self._unavailable(),
            makes_its_own_images=True,
        )

    def memory_providers(self) -> tuple[MemoryProvider, ...]:
        return (_LateCardMemory(lambda: self._models.card, self._ledger),)

    @contextmanager
    def turn(self) -> Iterator[None]:
        from modules import call_queue, sd_models

        if not call_queue.queue_lock.acquire(blocking=False):
            raise UnavailableError("A job is running; wait for it or stop it first.")
        try:
            with sd_models.model_data.lock:  # held while a checkpoint is being loaded
                yield
        finally:
            call_queue.queue_lock.release()

    def switch(self, profile: Profile) -> None:
        self._models.switch(profile)

    def predict(self, request: ImageRequest) -> Mapping[Profile, Prediction]:
        with self._models.lock:
            attachment = self._models.current()
            return attachment.placer.predict(request) if attachment else {}

    def choose(self, request: ImageRequest) -> Choice:
        with self._models.lock:
            attachment = self._models.current()
            if attachment is None:
                reason = self._models.no_card_because or "no checkpoint is loaded yet"
                return Choice(Profile.AUTO, f"nothing yet, because {reason}.")
            chosen = attachment.placer.choose(request)
            return Choice(chosen.profile, chosen.reason, chosen.peak_bytes)

    def generate(
        self, request: ImageRequest, profile: Profile, job_id: str, folder: Path, observer: JobObserver
    ) -> JobResult:
        raise UnavailableError("Images are made in the WebUI's own tabs.")

    def close(self) -> None:
        self._models.close()

    @property
    def whereabouts(self) -> Callable[[], str]:
        """Says where in the job a call is, for the words of a rung."""
        return self._models.whereabouts

    @whereabouts.setter
    def whereabouts(self, value: Callable[[], str]) -> None:
        self._models.whereabouts = value

    @contextmanager
    def job(self, request: ImageRequest, profile: Profile, observer: JobObserver) -> Iterator[JobPlacement]:
        placement = JobPlacement(request, profile, observer)
        try:
            self._models.begin_job(placement)
            yield placement
        finally:
            self._models.end_job()

    def profile_in_force(self) -> str:
        attachment = self._models.current()
        return str(attachment.profile) if attachment and attachment.profile else "unplaced"

    def resident_percent(self) -> int | None:
        attachment, card = self._models.current(), self._models.card
        if attachment is None or card is None or attachment.profile is not Profile.STREAM:
            return None
        unet = next(component.module for component in attachment.components if component.name == "unet")
        held = sum(tensor.nbytes for tensor in unet.parameters() if card.holds(tensor))
        total = sum(tensor.nbytes for tensor in unet.parameters())
        return round(100 * held / total) if total else None

    def rungs_taken(self) -> tuple[str, ...]:
        return tuple(self._models.rungs)

    def report(self, words: str) -> None:
        self._models.report(words)

    def make_room(self) -> str | None:
        models = self._models
        with models.lock:
            if models.card is None:
                return None
            before = sum(attachment.placed.resident_bytes() for attachment in models.attachments)
            for attachment in models.attachments:
                smaller = attachment.placed.smaller(Profile.DEDICATED)
                if attachment.profile is Profile.DEDICATED and smaller is not None:
                    attachment.placer.try_place(smaller)
                    models.mark(attachment)
                else:
                    attachment.placed.rest()
            models.card.release_cached()
            if not before:
                return None
            words = "took the model's weights off the card to make room"
            models.report(words)
            return words

    def peak_bytes(self) -> int | None:
        return self._models.card.peak_bytes() if self._models.card is not None else None

    def reset_peak(self) -> None:
        if self._models.card is not None:
            self._models.card.reset_peak()

    def moved_bytes(self) -> int:
        return self._models.card.moved_bytes if self._models.card is not None else 0

    def synchronize(self) -> None:
        if self._models.card is not None:
            self._models.card.synchronize()

    @property
    def device_label(self) -> str:
        return self._models.card.label if self._models.card is not None else "no card"

    @property
    def simulated(self) -> bool:
        return self._models.card is not None and self._models.card.simulated

    def _notices(self) -> tuple[str, ...]:
        notices = []
        if self.simulated:
            notices.append(f"Nothing is placed on a GPU: memory is counted on a {self.device_label}.")
        if self._models.no_card_because:
            notices.append(f"Nothing is placed, because {self._models.no_card_because}.")
        return tuple(notices)

    def _unavailable(self) -> dict[Profile, str]:
        if self._models.no_card_because:
            return dict.fromkeys((profile for profile in PROFILES if profile is not Profile.AUTO),
                                 self._models.no_card_because)
        link = self._models.card.no_link_because if self._models.card is not None else None
        if not link:
            return {}
        by_driver = (Profile.SPILL,) if self._models.spills_by_driver() else ()
        return {profile: link for profile in NEED_LINK if profile not in by_driver}


class _LateCardMemory:
    """The card's figures once there is a card."""

    name = "card"

    def __init__(self, card: Callable[[], Card | None], ledger: SharedLedger) -> None:
        self._card = card
        self._ledger = ledger

    def read(self) -> Reading:
        card = self._card()
        return CardMemory(card, self._ledger).read() if card is not None else Reading({})
