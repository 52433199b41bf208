"""A model's components on a card under one placement, which can be switched while the model stays loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import UnavailableError
from .card import Card
from .component import Component, refuse_foreign_hooks
from .placements import OneAtATime, Placement, WholeModel
from .profile import PROFILES, Profile


class PlacedModel:
    """Owns where the weights of a model are. Not thread-safe: one job or switch at a time."""

    def __init__(self, components: Sequence[Component], card: Card) -> None:
        self.components = tuple(components)
        self.card = card
        self._placement: Placement | None = None

    @property
    def profile(self) -> Profile | None:
        """The placement in force; ``None`` while all weights rest in system memory under none."""
        return self._placement.profile if self._placement else None

    def switch(self, profile: Profile) -> None:
        """Undo the placement in force and apply this one. The same profile again changes nothing.

        Raises:
            UnavailableError: no such placement here, or another program's hooks are on a component.
            torch.cuda.OutOfMemoryError: it does not fit; no placement is in force then.
        """
        if self.profile is profile:
            return
        reason = PROFILES[profile].unavailable_because
        if reason or profile is Profile.AUTO:
            raise UnavailableError(f"The profile “{profile}” cannot be applied, because {reason or 'it only chooses'}.")
        for component in self.components:
            refuse_foreign_hooks(component)
        self.undo()
        placement: Placement
        if profile is Profile.DEDICATED:
            placement = WholeModel(self.components, self.card)
        else:
            placement = OneAtATime(profile, self.components, self.card)
        placement.apply()
        self._placement = placement

    def undo(self) -> None:
        """Every weight back in system memory, no hook left. Interrupted, it can be called again."""
        if self._placement is not None:
            self._placement.undo()
            self._placement = None

    @contextmanager
    def component_call(self, component: Component, call: str) -> Iterator[None]:
        """Around one call of a component: its weights are where the placement wants them for it."""
        placement = self._placement
        if placement is None:
            raise UnavailableError("No profile is in force, so the model cannot run.")
        try:
            placement.enter(component, call)
            yield
        finally:
            placement.leave(component, call)

    def repair(self) -> None:
        """After an interrupted call: every weight to where the placement wants it between calls."""
        if self._placement is not None:
            self._placement.repair()

    def rest(self) -> None:
        """Between jobs: only what belongs on the card for good stays there."""
        if self._placement is not None:
            self._placement.rest()

    def resident_bytes(self) -> int:
        """Bytes of this model's weights that are on the card now."""
        weights = {
            id(tensor): tensor
            for component in self.components
            for tensor in (*component.module.parameters(), *component.module.buffers())
        }
        return sum(tensor.nbytes for tensor in weights.values() if self.card.holds(tensor))
