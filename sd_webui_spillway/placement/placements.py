"""The placements that move whole pieces: everything at once, or one piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from .card import Card
from .component import Component, ComponentKind, blocks, leaves, parts
from .profile import Profile
from .unit import SlotTable, WeightUnit


class Placement(Protocol):
    """One way to place the components of a model, in force between :meth:`apply` and :meth:`undo`."""

    profile: Profile

    def apply(self) -> None:
        """Take over the components, which rest in system memory.

        Raises:
            torch.cuda.OutOfMemoryError: they do not fit; they rest in system memory again.
        """

    def undo(self) -> None:
        """Put every weight back into system memory, edits included, and remove every hook."""

    def enter(self, component: Component, call: str) -> None:
        """Before a component's call. Raises out-of-memory as :meth:`apply` does; :meth:`repair` then mends."""

    def leave(self, component: Component, call: str, *, complete: bool) -> None:
        """After a component's call, ``complete`` or failed."""

    def repair(self) -> None:
        """After an interrupted call: bring every weight back to where this placement wants it between calls."""

    def rest(self) -> None:
        """Between jobs: leave on the card only what belongs there for good, and forget what :meth:`shrink` did."""

    def shrink(self, component: Component, call: str, lacking_bytes: int | None) -> str | None:
        """After a call ran out of memory: leave it more of the card, for the rest of the job.

        Args:
            lacking_bytes: what the call lacked; ``None`` is unknown.

        Returns:
            In words what was done; ``None`` where this placement has nothing left to give.
        """


class WholeModel:
    """``dedicated``: every component stays on the card; system memory keeps no second copy.

    Where a weight is, it asks the card: a host that moves its own model about, and brings it back, does no harm.
    """

    def __init__(self, components: Sequence[Component], card: Card, profile: Profile = Profile.DEDICATED) -> None:
        """``profile`` is what it is called: ``spill`` where the graphics driver moves out what does not fit."""
        self.profile = profile
        self._card = card
        self._modules = [component.module for component in components]
        self._complete = False

    def apply(self) -> None:
        try:
            self.repair()
        finally:
            if not self._complete:
                self.undo()

    def undo(self) -> None:
        self._complete = False
        for tensor in self._tensors():
            if self._card.holds(tensor):
                tensor.data = self._card.fetch(tensor.data)

    def enter(self, component: Component, call: str) -> None:
        """Everything is there already, unless a repair did not fit."""
        if not self._complete:
            self.repair()

    def leave(self, component: Component, call: str, *, complete: bool) -> None:
        """Everything stays."""

    def repair(self) -> None:
        self._complete = False
        for tensor in self._tensors():
            if not self._card.holds(tensor):
                tensor.data = self._card.put(self._card.resting(tensor))
        self._complete = True

    def rest(self) -> None:
        """Everything belongs on the card for good."""

    def shrink(self, component: Component, call: str, lacking_bytes: int | None) -> str | None:
        """Everything or nothing: there is no smaller way to do this."""
        return None

    def _tensors(self) -> Iterator[torch.Tensor]:
        for module in self._modules:
            yield from module.parameters()
            yield from module.buffers()


class OneAtATime:
    """``medvram``, ``lowvram`` and ``sequential``: at most one unit of weights on the card at any time.

    They differ only in how large a unit is: what one call of a component needs, a UNet block, or a layer. Masters stay
    in system memory, so that making room copies nothing back.
    """

    def __init__(
        self,
        profile: Profile,
        components: Sequence[Component],
        card: Card,
        pieces: Callable[[Component], list[nn.Module]] | None = None,
    ) -> None:
        """``pieces`` names the modules of a component that move on their own, where the profile's cut is not meant."""
        self.profile = profile
        self._pieces = pieces or partial(_pieces, profile)
        self._card = card
        self._components = components
        self._resident: WeightUnit | None = None
        self._by_call: dict[tuple[str, str], WeightUnit] = {}
        self._by_module: list[tuple[nn.Module, WeightUnit]] = []
        self._held: dict[str, WeightUnit] = {}
        """What a component needs throughout a call beside the unit in use."""
        self._handles: list[RemovableHandle] = []
        slots = SlotTable(keep_masters=True)
        for component in components:
            self._cut(component, slots)
        self._slots = slots.slots_of([component.module for component in components])

    def _cut(self, component: Component, slots: SlotTable) -> None:
        pieces = self._pieces(component)
        if not pieces:
            for call, modules in parts(component).items():
                self._by_call[component.name, call] = WeightUnit(slots.slots_of(modules))
            return
        for module in pieces:
            unit = WeightUnit(slots.slots_of([module]))
            if unit.slots:
                self._by_module.append((module, unit))
        self._held[component.name] = WeightUnit(slots.slots_of([component.module], without=pieces))

    def apply(self) -> None:
        for slot in self._slots:
            self._card.resting(slot.tensor)
        for module, unit in self._by_module:
            self._handles.append(module.register_forward_pre_hook(self._hook(unit), prepend=True))

    def undo(self) -> None:
        self.rest()  # first: interrupted, it leaves a placement that still works
        while self._handles:
            self._handles.pop().remove()

    def enter(self, component: Component, call: str) -> None:
        unit = self._by_call.get((component.name, call))
        if unit is not None:
            self._bring(unit)
            return
        self._make_room()
        self._held[component.name].load(self._card)

    def leave(self, component: Component, call: str, *, complete: bool) -> None:
        held = self._held.get(component.name)
        if held is not None:
            held.evict(self._card)

    def repair(self) -> None:
        self.rest()

    def rest(self) -> None:
        self._make_room()
        for unit in self._held.values():
            unit.evict(self._card)

    def shrink(self, component: Component, call: str, lacking_bytes: int | None) -> str | None:
        """The units are what they are."""
        return None

    def _hook(self, unit: WeightUnit) -> Any:
        def bring(module: nn.Module, args: Any) -> Any:
            del module
            self._bring(unit)
            return self._card.bring(args)  # a host that looks where a layer's weights rest left them there

        return bring

    def _bring(self, unit: WeightUnit) -> None:
        if self._resident is unit and unit.loaded:
            return
        self._make_room()
        self._resident = unit
        unit.load(self._card)

    def _make_room(self) -> None:
        if self._resident is not None:
            self._resident.evict(self._card)
            self._resident = None


def largest_unit_bytes(profile: Profile, components: Sequence[Component]) -> dict[str, int]:
    """By component that this profile cuts, the most of its weights on the card at once."""
    slots = SlotTable(keep_masters=True)
    largest = {}
    for component in components:
        pieces = _pieces(profile, component)
        if pieces:
            beside = WeightUnit(slots.slots_of([component.module], without=pieces)).nbytes
            largest[component.name] = beside + max(WeightUnit(slots.slots_of([piece])).nbytes for piece in pieces)
    return largest


def _pieces(profile: Profile, component: Component) -> list[nn.Module]:
    """The modules that move on their own under a profile; none where the component moves call by call. A conditioning
    model always does: MiDaS runs its transformer without calling it."""
    if profile is Profile.SEQUENTIAL and component.kind is not ComponentKind.OTHER:
        pieces = [module for _, module in leaves(component.module)]
    elif profile is Profile.LOWVRAM and component.kind is ComponentKind.UNET:
        pieces = [module for _, module in blocks(component.module)]
    else:
        pieces = []
    return [] if component.module in pieces else pieces
