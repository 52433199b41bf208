"""The checkpoints that the host has loaded, each attached under our placement or left to the host."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...errors import SpillwayError, first_line
from ...host_port import ImageRequest, JobObserver
from ...memory.shared_ledger import SharedLedger
from ...placement.card import Card
from ...placement.profile import NEED_LINK, Profile
from ...recovery.guard import LadderExhaustedError
from ...recovery.ladder import LadderSwitches, Rung
from ...recovery.out_of_memory import is_out_of_memory
from .attachment import Attachment
from .takeover import give_back_to_host, mark, take_from_host

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlacementChoices:
    """What the user chose of how to place, read anew for every job."""

    switches: LadderSwitches = field(default_factory=LadderSwitches)
    dedicated_percent: int = 100
    """Of the card, what plans may use."""
    tile_always: bool = False
    spills_by_driver: bool = False


@dataclass
class JobPlacement:
    """How one job is placed, and who is told."""

    request: ImageRequest
    profile: Profile
    observer: JobObserver
    estimated_dedicated_bytes: int | None = None
    notices: list[str] = field(default_factory=list)

    @property
    def profile_asked(self) -> str:
        return self.profile.value


class ModelTable:
    """Fulfils :class:`~.takeover.Placements`. Safe from the threads of the host: the one that loads a model, the one
    that runs a job, and those that answer the page."""

    def __init__(
        self,
        open_card: Callable[[], Card],
        ledger: SharedLedger,
        profile: Profile,
        choices: Callable[[], PlacementChoices],
    ) -> None:
        """
        Args:
            open_card: makes the card, at the first model; it raises ``UnavailableError`` where there is none that we
                can place on.
            profile: in force until the user switches.
        """
        self.lock = threading.RLock()
        self.attachments: list[Attachment] = []
        self.profile = profile
        """The user's."""
        self.job: JobPlacement | None = None
        self.rungs: list[str] = []
        """What was done beside what was asked, since the last job began, in words."""
        self.whereabouts: Callable[[], str] = lambda: ""
        self.no_card_because: str | None = None
        self._loading_off_card = False
        self._card: Card | None = None
        self._counted: dict[tuple[Any, ...], int] = {}
        self._open_card = open_card
        self._ledger = ledger
        self._choices = choices

    @property
    def card(self) -> Card | None:
        """The card, if it has been needed already."""
        return self._card

    def current(self) -> Attachment | None:
        """The attachment of the checkpoint in use."""
        model = current_model()
        return next((known for known in self.attachments if known.model is model), None)

    def places(self) -> bool:
        with self.lock:
            return self._card_or_none() is not None

    def spills_by_driver(self) -> bool:
        """Whether ``spill`` is left to the graphics driver."""
        return self._choices().spills_by_driver

    def keeps_off_card(self) -> bool:
        return self._loading_off_card or (self.job.profile if self.job else self.profile) is not Profile.DEDICATED

    def attach(self, model: Any) -> None:
        with self.lock:
            if any(known.model is model and known.current() for known in self.attachments):
                return  # a job that came before the host was done with loading has attached it
            self.detach(model)
            card = self._card_or_none()
            if card is None:
                return
            try:
                self._begin(self._attached(model, card))
            except LadderExhaustedError as error:
                self.detach(model)
                if self.job is not None:
                    raise
                logger.warning("the checkpoint rests in system memory until a job asks for it. %s", error)
            except Exception as error:
                if isinstance(error, SpillwayError) or is_out_of_memory(error):
                    self.detach(model)
                    raise
                logger.exception("a model could not be taken over")
                self._stand_down(model, f"a model could not be taken over ({first_line(error)})")

    def _attached(self, model: Any, card: Card) -> Attachment:
        take_from_host(model)
        attachment = Attachment(
            model, card, self._ledger,
            switches=self._choices().switches,
            on_rung=self._on_rung,
            report=self.report,
            whereabouts=lambda: self.whereabouts(),
            reserved_bytes=self._reserved_bytes,
            takes_step_down=lambda: self.job is not None and self.job.observer.takes_step_down(),
            spills_by_driver=self.spills_by_driver,
            counted=self._counted,
        )
        self.attachments.append(attachment)
        self.mark(attachment)
        attachment.attach(*(self.job.profile, self.job.request) if self.job else (self.profile, None))
        return attachment

    def _stand_down(self, model: Any, because: str) -> None:
        """Give every model back for good: one that lies as neither we nor the host expect makes no image at all."""
        self.no_card_because = because
        models = [model, *(other.model for other in self.attachments if other.model is not model)]
        self.close()
        for one in models:
            give_back_to_host(one)

    def detach(self, model: Any) -> None:
        with self.lock:
            for attachment in [known for known in self.attachments if known.model is model]:
                self.attachments.remove(attachment)
                attachment.release()

    def rest(self) -> None:
        with self.lock:
            for attachment in self.attachments:
                # The host asks after every batch; within a job these two would forget what calls lacked before.
                if self.job is None or attachment.profile not in NEED_LINK:
                    attachment.placed.rest()

    def load_out_of_memory(self, model: Any, words: str) -> None:
        logger.warning("the checkpoint does not fit on the card (%s)", words)
        self.unsettle(model)
        self.report("the checkpoint does not fit on the card: it is kept in system memory")

    def unsettle(self, model: Any) -> None:
        from modules import devices

        self.detach(model)
        model.to(devices.cpu)
        if self._card is not None:
            self._card.release_cached()
        mark(model, off_card=True)

    @contextmanager
    def loading_off_card(self, words: str) -> Iterator[None]:
        logger.warning("loading the checkpoint ran out of memory (%s): it is loaded into system memory", words)
        with self.lock:
            for attachment in self.attachments:
                attachment.placed.rest()
        if self._card is not None:
            self._card.release_cached()
        self._loading_off_card = True
        try:
            yield
        finally:
            self._loading_off_card = False
        self.report("loading the checkpoint ran out of memory: it was loaded into system memory first")

    def switch(self, profile: Profile) -> None:
        """Place every checkpoint so from now on; ``auto`` leaves them where they are.

        Raises:
            UnavailableError: it does not fit; the placement before is back in force.
        """
        with self.lock:
            if profile is not Profile.AUTO:
                for attachment in self.attachments:
                    attachment.placer.switch(profile)
                    self.mark(attachment)
            self.profile = profile

    def begin_job(self, job: JobPlacement) -> None:
        """Place the checkpoint in use for a job; those that the job loads later follow.

        Raises:
            SpillwayError: it cannot be placed at all.
        """
        with self.lock:
            self.job, self.rungs = job, []
            model, attachment = current_model(), self.current()
            if model is None or self._card_or_none() is None:
                return
            if attachment is None or not attachment.current():
                self.attach(model)
            else:
                self._begin(attachment)

    def end_job(self) -> None:
        """Place every checkpoint as the user wants it between jobs."""
        with self.lock:
            self.job = None
            for attachment in self.attachments:
                attachment.end_job(None if self.profile is Profile.AUTO else self.profile)
                self.mark(attachment)

    def close(self) -> None:
        """Give every checkpoint back, resting in system memory, and the card."""
        with self.lock:
            while self.attachments:
                self.attachments.pop().release()
            if self._card is not None:
                self._card.close()
                self._card = None

    def mark(self, attachment: Attachment) -> None:
        """Keep the host's own code off a checkpoint that is not whole on the card."""
        mark(attachment.model, off_card=attachment.profile is not Profile.DEDICATED)

    def report(self, words: str) -> None:
        """Something was done beside what was asked."""
        self.rungs.append(words)
        if self.job is not None:
            self.job.observer.rung(words)

    def _begin(self, attachment: Attachment) -> None:
        job = self.job
        if job is not None:
            plan = attachment.placer.plan_job(job.request, job.profile)
            if self._choices().tile_always:
                plan = plan.with_tiles()
            job.notices.extend(plan.notices)
            job.estimated_dedicated_bytes = plan.estimated_dedicated_bytes
            job.observer.profile(attachment.begin_job(plan, job.request))
        self.mark(attachment)

    def _on_rung(self, rung: Rung) -> None:
        self.report(rung.words)
        attachment = self.current()
        if attachment is not None and attachment.profile is not None:
            self.mark(attachment)
            if self.job is not None:
                self.job.observer.profile(attachment.profile)

    def _card_or_none(self) -> Card | None:
        if self._card is None and self.no_card_because is None:
            try:
                self._card = self._open_card()
            except SpillwayError as error:
                self.no_card_because = str(error)
            except (RuntimeError, AssertionError) as error:  # as torch says that a device is not there or not usable
                self.no_card_because = f"the card cannot be used ({first_line(error)})"
            if self.no_card_because:
                logger.info("nothing is placed, because %s", self.no_card_because)
        return self._card

    def _reserved_bytes(self) -> int:
        return self._card.limit_bytes * (100 - self._choices().dedicated_percent) // 100 if self._card else 0


def current_model() -> Any:
    """The checkpoint in use; asking the host's ``shared.sd_model`` would load one."""
    from modules import sd_models

    return sd_models.model_data.sd_model


def default_request(model: Any) -> ImageRequest:
    """One image of the size that the checkpoint was made for."""
    large = getattr(model, "conditioner", None) is not None or hasattr(model, "text_encoders")
    side = 1024 if large else 512
    return ImageRequest(width=side, height=side)
