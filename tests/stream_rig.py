"""A model that streams on a simulated card whose link is an adversary, and what must be left of it: nothing."""

from __future__ import annotations

import gc
import random
from typing import Any

from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.placement.placed_model import PlacedModel
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.placement.simulated_link import SimulatedLink
from sd_webui_spillway.placement.stream import StreamOptions
from sd_webui_spillway.recovery.guard import Guard
from sd_webui_spillway.units import MIB

from .placed_rig import Rig

CHUNK_BYTES = 8192


class PlannedError(RuntimeError):
    """What a test told to fail has failed."""


class FaultyLink(SimulatedLink):
    """Its copies can be told to fail."""

    failing: frozenset[int] = frozenset()
    asked = 0

    def fail(self, *numbers: int) -> None:
        """The copies of these numbers from now on, from 0, raise and copy nothing."""
        self.failing, self.asked = frozenset(numbers), 0

    def upload(self, *args: Any) -> None:
        number, self.asked = self.asked, self.asked + 1
        if number in self.failing:
            raise PlannedError("CUDA error: out of memory (planned by the test)")
        super().upload(*args)


def adversary(eager: float = 0.0, seed: int = 0, **more: Any) -> FaultyLink:
    """A link that never copies before it has to (``eager`` 0), as soon as it may (1), or anything in between."""
    return FaultyLink(eager, random.Random(seed), **more)


class StreamRig(Rig):
    """The small model of :class:`Rig` under ``stream``, cut into many chunks."""

    def __init__(
        self, budget_bytes: int | None = None, *, link: SimulatedLink | None = None, card: Any = None,
        cap_bytes: int = 64 * MIB, chunk_bytes: int = CHUNK_BYTES, slots: int = 3, **rig: Any,
    ) -> None:
        self.link = link or adversary()
        super().__init__(card or SimulatedCard(256 * MIB, self.link), guarded=False, **rig)
        self.ledger = SharedLedger(cap_bytes)
        self.model = PlacedModel(self.components, self.card, self.ledger, StreamOptions(chunk_bytes, slots))
        self.guard = Guard(self.model, on_rung=self.rungs.append)
        self.guard.install()
        self.model.set_weights_budget(budget_bytes)
        self.model.switch(Profile.STREAM)

    @property
    def unet_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.unet.module.parameters())

    def streamed(self, name: str = "unet") -> Any:
        """The component's engine, once it has been called."""
        return self.model._streaming._streamed[name]

    def check_nothing_left(self) -> None:
        """After an undo: no byte on the card, none pinned, none reserved, none under way."""
        gc.collect()
        assert self.card._weights.sweep() == 0
        assert self.ledger.pinned_bytes == 0
        assert self.link.pinned == {}
        assert not self.link._queue
