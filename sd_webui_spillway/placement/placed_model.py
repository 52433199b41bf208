"""A model's components on a card under one placement, which can be switched while the model stays loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from ..errors import UnavailableError
from ..memory.shared_ledger import SharedLedger
from .card import Card
from .component import Component, refuse_foreign_hooks
from .placements import OneAtATime, Placement, WholeModel
from .profile import NEED_LINK, PROFILES, SMALLER, Profile
from .spill import Spilling, SpillOptions
from .stream import Streaming, StreamOptions

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _in_turn(method: _Method) -> _Method:
    @wraps(method)
    def waiting(self: PlacedModel, *args: Any, **kwargs: Any) -> Any:
        with self.turn:
            return method(self, *args, **kwargs)

    return cast("_Method", waiting)


class PlacedModel:
    """Owns where the weights of a model are. Calls of components and moves of weights take turns, from whatever thread
    (a host may decode a preview beside the sampling); one job or switch at a time."""

    def __init__(
        self,
        components: Sequence[Component],
        card: Card,
        ledger: SharedLedger | None = None,
        options: StreamOptions | None = None,
        spill_options: SpillOptions | None = None,
        spills_by_driver: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            ledger: where pinned bytes are reserved; by default one of this model's own, with the default cap.
            options: for the ``stream`` profile.
            spill_options: for the ``spill`` profile.
            spills_by_driver: whether ``spill`` leaves the whole model on the card and the rest to the graphics driver.
        """
        self.turn = threading.RLock()
        self.components = tuple(components)
        self.card = card
        self.ledger = ledger or SharedLedger()
        self._streaming = Streaming(self.components, card, self.ledger, options or StreamOptions())
        self._spilling = Spilling(self.components, card, self.ledger, spill_options or SpillOptions())
        self.spills_by_driver = spills_by_driver
        self._placement: Placement | None = None

    @property
    def profile(self) -> Profile | None:
        """The placement in force; ``None`` while all weights rest in system memory under none."""
        return self._placement.profile if self._placement else None

    def unavailable_because(self, profile: Profile) -> str | None:
        """Why a profile cannot be applied on this card; ``None`` where it can."""
        if profile in NEED_LINK and not (profile is Profile.SPILL and self.spills_by_driver()):
            return self.card.no_link_because
        return PROFILES[profile].unavailable_because

    def smaller(self, profile: Profile) -> Profile | None:
        """The next smaller placement that this card has, the way the guard's ladder goes down."""
        return next((below for below in SMALLER.get(profile, ()) if self.unavailable_because(below) is None), None)

    @_in_turn
    def set_weights_budget(self, budget_bytes: int | None) -> None:
        """The most dedicated memory that weights may take under ``stream`` and ``spill``, from now on; ``None`` is half
        of what is free when the profile is applied. The smallest ring is taken even where it exceeds the budget, and so
        is what cannot be pinned under ``spill``."""
        self._streaming.set_budget(budget_bytes)
        self._spilling.set_budget(budget_bytes)

    def predicted_step_seconds(self, component: Component) -> float | None:
        """What a call of a component will take under ``stream``, by its plan; ``None`` is unknown: it does not stream,
        or no call has been measured yet."""
        return self._streaming.predicted_step_seconds(component)

    @_in_turn
    def plan_alone(self, component: Component, call: str) -> None:
        """Until the next :meth:`rest`: under ``stream``, take the other components' weights off the card for this call,
        without running out of memory first."""
        self._streaming.plan_alone(component, call)

    @_in_turn
    def switch(self, profile: Profile) -> None:
        """Undo the placement in force and apply this one. The same profile again changes nothing, unless
        somebody else is to spill now.

        Raises:
            UnavailableError: no such placement here, or another program's hooks are on a component.
            torch.cuda.OutOfMemoryError: it does not fit; no placement is in force then.
        """
        by_driver = profile is Profile.SPILL and self.spills_by_driver()
        anew = profile is Profile.SPILL and by_driver is (self._placement is self._spilling)
        if self.profile is profile and not anew:
            return
        reason = self.unavailable_because(profile)
        if reason or profile is Profile.AUTO:
            raise UnavailableError(f"The profile “{profile}” cannot be applied, because {reason or 'it only chooses'}.")
        for component in self.components:
            refuse_foreign_hooks(component)
        self.undo()
        placement: Placement
        if profile is Profile.DEDICATED or by_driver:
            placement = WholeModel(self.components, self.card, profile)
        elif profile is Profile.STREAM:
            placement = self._streaming
        elif profile is Profile.SPILL:
            placement = self._spilling
        else:
            placement = OneAtATime(profile, self.components, self.card)
        placement.apply()
        self._placement = placement

    @_in_turn
    def undo(self) -> None:
        """Every weight back in system memory, no hook left. Interrupted, it can be called again."""
        if self._placement is not None:
            self._placement.undo()
            self._placement = None

    @contextmanager
    def component_call(self, component: Component, call: str) -> Iterator[None]:
        """Around one call of a component: its weights are where the placement wants them for it."""
        with self.turn:
            placement = self._placement
            if placement is None:
                raise UnavailableError("No profile is in force, so the model cannot run.")
            complete = False
            try:
                placement.enter(component, call)
                yield
                complete = True
            finally:
                placement.leave(component, call, complete=complete)

    @_in_turn
    def repair(self) -> None:
        """After an interrupted call: every weight to where the placement wants it between calls."""
        if self._placement is not None:
            self._placement.repair()

    @_in_turn
    def rest(self) -> None:
        """Between jobs: only what belongs on the card for good stays there."""
        if self._placement is not None:
            self._placement.rest()

    @_in_turn
    def shrink(self, component: Component, call: str, lacking_bytes: int | None) -> str | None:
        """After this call ran out of memory: the same placement with less of it on the card, in words; ``None`` where
        there is nothing left to give."""
        return self._placement.shrink(component, call, lacking_bytes) if self._placement is not None else None

    def resident_bytes(self) -> int:
        """Bytes that this model's weights take on the card now; those that share memory there count it once."""
        storages = {
            storage._cdata: storage.nbytes()
            for component in self.components
            for tensor in (*component.module.parameters(), *component.module.buffers())
            if self.card.holds(tensor) and (storage := tensor.untyped_storage())
        }
        return sum(storages.values())
