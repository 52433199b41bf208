"""AUTOMATIC1111 as a host: its loaded checkpoints under our placements, switched between two images."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import SpillwayError, UnavailableError
from ...host_port import Choice, HostInfo, ImageRequest, JobObserver, JobResult, Prediction
from ...memory.shared_ledger import SharedLedger
from ...memory.snapshot import MemoryProvider
from ...placement.card import Card
from ...placement.profile import NEED_LINK, PROFILES, Profile
from ...recovery.ladder import LadderSwitches, Rung
from ..card_memory import CardMemory
from .attachment import Attachment
from .takeover import mark, take_from_host

logger = logging.getLogger(__name__)
NAME = "AUTOMATIC1111"
_PLACES_WHOLE = (Profile.DEDICATED,)


@dataclass
class JobPlacement:
    """How one job was placed."""

    profile_asked: str
    estimated_dedicated_bytes: int | None = None
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class HostChoices:
    """What the user chose of how to place, read anew for every job."""

    switches: LadderSwitches = field(default_factory=LadderSwitches)
    dedicated_percent: int = 100
    """Of the card, what plans may use."""
    tile_always: bool = False


class A1111Host:
    """Fulfils :class:`~...host_port.Host`; models come and go through :meth:`attach` and :meth:`detach`."""

    def __init__(
        self,
        open_card: Callable[[], Card],
        ledger: SharedLedger,
        profile: Profile,
        choices: Callable[[], HostChoices] = HostChoices,
    ) -> None:
        """
        Args:
            open_card: makes the card, at the first model; it raises ``UnavailableError`` where there is none that we
                can place on.
            ledger: where pinned bytes are reserved.
            profile: in force until the user switches.
            choices: what the user chose besides.
        """
        self._open_card = open_card
        self._ledger = ledger
        self._profile = profile
        self._choices = choices
        self._card: Card | None = None
        self._no_card_because: str | None = None
        self._attachments: list[Attachment] = []
        self._lock = threading.RLock()
        self._observer: JobObserver | None = None
        self._job: tuple[ImageRequest, Profile, JobPlacement] | None = None
        self._rungs: list[str] = []
        self.whereabouts: Callable[[], str] = lambda: ""
        """Says where in the job a call is, for the words of a rung."""

    # What the session asks

    def info(self) -> HostInfo:
        model = _current_model()
        notices = []
        if self._card is not None and self._card.simulated:
            notices.append(f"Nothing is placed on a GPU: memory is counted on a {self._card.label}.")
        if self._no_card_because:
            notices.append(f"Nothing is placed, because {self._no_card_because}.")
        return HostInfo(
            name=NAME,
            model=_model_name(model),
            device_name=self.device_label,
            simulated=self.simulated,
            notices=tuple(notices),
            default_size=_default_size(model),
            unavailable_profiles=self._unavailable(),
            makes_its_own_images=True,
        )

    def memory_providers(self) -> tuple[MemoryProvider, ...]:
        return (_LateCardMemory(lambda: self._card, self._ledger),)

    @contextmanager
    def turn(self) -> Iterator[None]:
        from modules import call_queue

        if not call_queue.queue_lock.acquire(blocking=False):
            raise UnavailableError("A job is running; wait for it or stop it first.")
        try:
            yield
        finally:
            call_queue.queue_lock.release()

    def switch(self, profile: Profile) -> None:
        with self._lock:
            if profile is not Profile.AUTO:
                for attachment in self._attachments:
                    attachment.placer.switch(profile)
                    self._mark(attachment)
            self._profile = profile

    def predict(self, request: ImageRequest) -> Mapping[Profile, Prediction]:
        with self._lock:
            attachment = self._current()
            return attachment.placer.predict(request) if attachment else {}

    def choose(self, request: ImageRequest) -> Choice:
        with self._lock:
            attachment = self._current()
            if attachment is None:
                reason = self._no_card_because or "no checkpoint is loaded yet"
                return Choice(Profile.AUTO, f"nothing yet, because {reason}")
            chosen = attachment.placer.choose(request)
            return Choice(chosen.profile, chosen.reason, chosen.peak_bytes)

    def generate(
        self, request: ImageRequest, profile: Profile, job_id: str, folder: Path, observer: JobObserver
    ) -> JobResult:
        raise UnavailableError("Images are made in the WebUI's own tabs.")

    def close(self) -> None:
        with self._lock:
            while self._attachments:
                self._attachments.pop().release()
            if self._card is not None:
                self._card.close()
                self._card = None

    # What the takeover asks

    def models(self) -> list[Any]:
        """The checkpoints under our placement."""
        with self._lock:
            return [attachment.model for attachment in self._attachments]

    def places(self) -> bool:
        with self._lock:
            return self._card_or_none() is not None

    def keeps_off_card(self) -> bool:
        profile = self._job[1] if self._job else self._profile
        return profile not in _PLACES_WHOLE

    def attach(self, model: Any) -> None:
        with self._lock:
            if any(known.model is model and known.current() for known in self._attachments):
                return  # a job that came before the host was done with loading has attached it
            self.detach(model)
            card = self._card_or_none()
            if card is None:
                return
            take_from_host(model)
            attachment = Attachment(
                model, card, self._ledger,
                switches=self._choices().switches,
                on_rung=lambda rung: self._on_rung(rung),
                report=self._report,
                whereabouts=lambda: self.whereabouts(),
                reserved_bytes=self._reserved_bytes,
            )
            self._attachments.append(attachment)
            words = attachment.attach(self._wanted(), self._job[0] if self._job else _default_request(model))
            if words:
                self._report(words)
            if self._job is not None:
                self._begin(attachment)
            self._mark(attachment)

    def detach(self, model: Any) -> None:
        with self._lock:
            for attachment in [known for known in self._attachments if known.model is model]:
                self._attachments.remove(attachment)
                attachment.release()

    def rest(self) -> None:
        with self._lock:
            for attachment in self._attachments:
                attachment.placed.rest()

    def load_out_of_memory(self, model: Any, words: str) -> None:
        from modules import devices

        logger.warning("the checkpoint does not fit on the card (%s); it is kept in system memory", words)
        model.to(devices.cpu)
        if self._card is not None:
            self._card.release_cached()
        mark(model, off_card=True)
        self._report("the checkpoint does not fit on the card: it is kept in system memory")

    # What a job asks

    @contextmanager
    def job(self, request: ImageRequest, profile: Profile, observer: JobObserver) -> Iterator[JobPlacement]:
        """Around one job: places the model for it, and puts it back as the user wants it afterwards.

        Raises:
            SpillwayError: it cannot be placed at all.
        """
        placement = JobPlacement(profile.value)
        with self._lock:
            self._observer, self._rungs = observer, []
            self._job = (request, profile, placement)
        try:
            self._refresh()
            yield placement
        finally:
            with self._lock:
                self._job = self._observer = None
                own = None if self._profile is Profile.AUTO else self._profile
                for attachment in self._attachments:
                    attachment.end_job(own)
                    self._mark(attachment)

    def profile_in_force(self) -> str:
        attachment = self._current()
        return str(attachment.profile) if attachment and attachment.profile else "unplaced"

    def resident_percent(self) -> int | None:
        """Of the UNet's weights, what is on the card between calls; ``None`` where that is no matter of degree."""
        attachment = self._current()
        if attachment is None or attachment.profile is not Profile.STREAM or self._card is None:
            return None
        unet = next(c.module for c in attachment.components if c.name == "unet")
        sizes = {t.untyped_storage().data_ptr(): (t.untyped_storage().nbytes(), self._card.holds(t))
                 for t in unet.parameters()}
        total = sum(size for size, _ in sizes.values())
        return round(100 * sum(size for size, held in sizes.values() if held) / total) if total else None

    def rungs_taken(self) -> tuple[str, ...]:
        return tuple(self._rungs)

    def make_room(self) -> str | None:
        """After an out-of-memory outside our calls: take weights off the card; in words what was done, or ``None``
        where there was nothing to take."""
        with self._lock:
            if self._card is None:
                return None
            before = sum(attachment.placed.resident_bytes() for attachment in self._attachments)
            for attachment in self._attachments:
                smaller = attachment.placed.smaller(Profile.DEDICATED)
                if attachment.profile is Profile.DEDICATED and smaller is not None:
                    attachment.placer.try_place(smaller)
                    self._mark(attachment)
                else:
                    attachment.placed.rest()
            self._card.release_cached()
            if not before:
                return None
            words = "took the model's weights off the card to make room"
            self._report(words)
            return words

    def peak_bytes(self) -> int | None:
        return self._card.peak_bytes() if self._card is not None else None

    def reset_peak(self) -> None:
        if self._card is not None:
            self._card.reset_peak()

    def moved_bytes(self) -> int:
        return self._card.moved_bytes if self._card is not None else 0

    def synchronize(self) -> None:
        if self._card is not None:
            self._card.synchronize()

    @property
    def device_label(self) -> str:
        return self._card.label if self._card is not None else "no card yet"

    @property
    def simulated(self) -> bool:
        return self._card is not None and self._card.simulated

    # Inside

    def _refresh(self) -> None:
        """Take over the model in use, if that has not happened or the host rebuilt it, and place it for the job."""
        model = _current_model()
        with self._lock:
            attachment = self._current()
            if model is None or self._card_or_none() is None:
                return
            if attachment is None or not attachment.current():
                self.attach(model)
            else:
                self._begin(attachment)
                self._mark(attachment)

    def _begin(self, attachment: Attachment) -> None:
        if self._job is None:
            return
        request, profile, placement = self._job
        plan = attachment.placer.plan_job(request, profile)
        if self._choices().tile_always:
            plan = plan.with_tiles()
        placement.notices.extend(plan.notices)
        placement.estimated_dedicated_bytes = plan.estimated_dedicated_bytes
        placed = attachment.begin_job(plan, request)
        if self._observer is not None:
            self._observer.profile(placed)

    def _current(self) -> Attachment | None:
        model = _current_model()
        return next((known for known in self._attachments if known.model is model), None)

    def _wanted(self) -> Profile:
        return self._job[1] if self._job else self._profile

    def _mark(self, attachment: Attachment) -> None:
        mark(attachment.model, off_card=attachment.profile not in _PLACES_WHOLE)

    def _card_or_none(self) -> Card | None:
        if self._card is None and self._no_card_because is None:
            try:
                self._card = self._open_card()
            except SpillwayError as error:
                self._no_card_because = str(error)
                logger.info("nothing is placed, because %s", error)
        return self._card

    def _reserved_bytes(self) -> int:
        return self._card.limit_bytes * (100 - self._choices().dedicated_percent) // 100 if self._card else 0

    def _unavailable(self) -> dict[Profile, str]:
        if self._no_card_because:
            return dict.fromkeys(PROFILES, self._no_card_because)
        link = self._card.no_link_because if self._card is not None else None
        return dict.fromkeys(NEED_LINK, link) if link else {}

    def _on_rung(self, rung: Rung) -> None:
        self._report(rung.words)
        attachment = self._current()
        if attachment is not None:
            self._mark(attachment)
            if self._observer is not None and attachment.profile is not None:
                self._observer.profile(attachment.profile)

    def _report(self, words: str) -> None:
        self._rungs.append(words)
        if self._observer is not None:
            self._observer.rung(words)


class _LateCardMemory:
    """The card's figures once there is a card."""

    name = "card"

    def __init__(self, card: Callable[[], Card | None], ledger: SharedLedger) -> None:
        self._card = card
        self._ledger = ledger

    def read(self) -> Any:
        from ...memory.snapshot import Reading

        card = self._card()
        return CardMemory(card, self._ledger).read() if card is not None else Reading({})


def _current_model() -> Any:
    """The checkpoint in use; asking the host's ``shared.sd_model`` would load one."""
    from modules import sd_models

    return sd_models.model_data.sd_model


def _model_name(model: Any) -> str:
    info = getattr(model, "sd_checkpoint_info", None)
    return str(info.name_for_extra) if info is not None else "no checkpoint yet"


def _default_size(model: Any) -> tuple[int, int]:
    large = getattr(model, "conditioner", None) is not None or hasattr(model, "text_encoders")
    return (1024, 1024) if large else (512, 512)


def _default_request(model: Any) -> ImageRequest:
    width, height = _default_size(model)
    return ImageRequest(width=width, height=height)
