"""A model whose weights are read in place on a simulated card, and what must be left of it: nothing."""

from __future__ import annotations

from typing import Any

from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.placement.placed_model import PlacedModel
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.placement.simulated_link import SimulatedLink
from sd_webui_spillway.placement.spill import Spilling, SpillOptions
from sd_webui_spillway.placement.stream import StreamOptions
from sd_webui_spillway.recovery.guard import Guard
from sd_webui_spillway.units import MIB

from .placed_rig import Rig, weights
from .stream_rig import CHUNK_BYTES, adversary

SMALL_PIECES = SpillOptions(piece_bytes=4096, smallest_bytes=256)


class SpillRig(Rig):
    """The small model of :class:`Rig` under ``spill``, cut into many pieces."""

    def __init__(
        self, budget_bytes: int | None = None, *, link: SimulatedLink | None = None, card: Any = None,
        cap_bytes: int = 64 * MIB, placed: bool = True, **rig: Any,
    ) -> None:
        self.link = link or adversary()
        super().__init__(card or SimulatedCard(256 * MIB, self.link), guarded=False, **rig)
        self.ledger = SharedLedger(cap_bytes)
        self.model = PlacedModel(
            self.components, self.card, self.ledger, StreamOptions(CHUNK_BYTES), SMALL_PIECES
        )
        self.guard = Guard(self.model, on_rung=self.rungs.append)
        self.guard.install()
        self.model.set_weights_budget(budget_bytes)
        if placed:
            self.model.switch(Profile.SPILL)

    @property
    def spilling(self) -> Spilling:
        return self.model._spilling

    @property
    def model_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in weights(self.components))

    def spilled(self) -> set[int]:
        """The weights that are read in place, by identity."""
        return {id(tensor) for tensor in weights(self.components) if self.link.maps(tensor)}

    def check_nothing_left(self) -> None:
        """After an undo: no byte on the card, none pinned, none reserved, every weight in plain system memory."""
        assert self.card._weights.sweep() == 0
        assert self.ledger.pinned_bytes == 0
        assert self.link.pinned == {}
        assert not self.spilled()
        assert not self.on_card()
