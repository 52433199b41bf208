"""One loaded checkpoint under our placement and guard, from :meth:`Attachment.attach` to :meth:`Attachment.release`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...errors import SpillwayError, first_line
from ...host_port import ImageRequest
from ...memory.shared_ledger import SharedLedger
from ...placement.card import Card
from ...placement.placed_model import PlacedModel
from ...placement.profile import Profile
from ...planning.footprint import CUDA_OVERHEAD, AllocatorOverhead
from ...recovery.guard import Guard
from ...recovery.ladder import LadderSwitches, Rung
from ..footprint_meter import FootprintMeter
from ..placer import JobPlan, Placer
from .components import components_of, move_rest, tensors_of, whole_batch_because
from .shapes import CheckpointShapes

logger = logging.getLogger(__name__)


class Attachment:
    """Owns where the weights of one checkpoint are. The host's own moves of it end while this lasts."""

    def __init__(
        self,
        model: Any,
        card: Card,
        ledger: SharedLedger,
        *,
        switches: LadderSwitches,
        on_rung: Callable[[Rung], None],
        report: Callable[[str], None],
        whereabouts: Callable[[], str],
        reserved_bytes: Callable[[], int],
        takes_step_down: Callable[[], bool],
        spills_by_driver: Callable[[], bool],
        counted: dict[tuple[Any, ...], int],
    ) -> None:
        """``counted`` is shared with the other checkpoints' (:class:`~..footprint_meter.FootprintMeter`)."""
        self.model = model
        self.components = components_of(model)
        self._card = card
        self.placed = PlacedModel(self.components, card, ledger, spills_by_driver=spills_by_driver)
        self.guard = Guard(
            self.placed, switches=switches, on_rung=on_rung, whereabouts=whereabouts,
            whole_batch_because=whole_batch_because, takes_step_down=takes_step_down,
        )
        overhead = AllocatorOverhead() if card.simulated else CUDA_OVERHEAD
        meter = FootprintMeter(
            self.components, CheckpointShapes(model), overhead, ledger if card.no_link_because is None else None,
            counted,
        )
        self.placer = Placer(self.placed, self.guard, meter, report, reserved_bytes)
        self._job_before: Profile | None = None
        self._in_job = False

    @property
    def profile(self) -> Profile | None:
        """The placement in force."""
        return self.placed.profile

    def current(self) -> bool:
        """Whether the model still consists of what was attached: the host builds new wrappers when its attention or its
        embeddings change."""
        return [c.module for c in components_of(self.model)] == [c.module for c in self.components]

    def attach(self, profile: Profile, request: ImageRequest | None) -> None:
        """Take the model over under a profile, or under the next smaller one that fits. ``auto`` takes what suits this
        request; before there is one, what takes nothing in advance: to choose it would have to count, and the host is
        still loading.

        Raises:
            LadderExhaustedError: none fits. The model rests in system memory, and the next job tries again.
        """
        move_rest(self.model, self.components, self._card.device)
        self.guard.install()
        if profile is Profile.AUTO:
            profile = self.placer.choose(request).profile if request is not None else Profile.MEDVRAM
        if profile is not Profile.DEDICATED:  # which takes what is on the card already for placed
            self._bring_home()
        self.placer.place_or_smaller(profile)

    def _bring_home(self) -> None:
        for tensor in tensors_of(self.components):
            if self._card.holds(tensor):
                tensor.data = self._card.fetch(tensor.data)

    def begin_job(self, plan: JobPlan, request: ImageRequest) -> Profile:
        """Place the model for a job, to the end of which the ladder's lessons hold."""
        profile = self.placer.begin_job(plan, request)
        self._job_before, self._in_job = profile, True
        return profile

    def end_job(self, profile: Profile | None) -> None:
        """Forget what the ladder learnt, and place the model as the user wants it, or leave it as the job had it."""
        if self._in_job:
            self._in_job = False
            self.guard.settle(profile or self._job_before)

    def release(self) -> None:
        """Every weight in system memory, no hook and no patch of ours left; the host may do with it what it likes."""
        self._in_job = False
        self.guard.undo()
        try:
            self.placed.undo()
        except SpillwayError as error:
            logger.warning("the model could not be given back whole: %s", first_line(error))
