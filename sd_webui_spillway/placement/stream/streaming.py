"""The ``stream`` placement: what the budget has no room for flows through a ring, the rest comes whole in its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...memory.shared_ledger import SharedLedger
from ..card import Card
from ..component import Component, ComponentKind, parts
from ..profile import Profile
from ..unit import SlotTable, WeightUnit
from .layout import chunk_bytes_for
from .leaves import tensors_of
from .streamed import StreamedComponent, StreamPlan, can_stream, smallest_bytes


@dataclass(frozen=True)
class StreamOptions:
    """How the ring is made."""

    chunk_bytes: int | None = None
    """Size of a chunk; by default from 32 to 96 MiB, by the component's size."""
    slots: int = 3


class Streaming:
    """The UNet streams, with as much of it resident as the budget allows. Text encoders and VAE come whole, one at a
    time, where they fit in the budget; a text encoder that does not streams as well.

    Together they keep to the budget: a component that needs the room has the others' weights leave the card, masters
    staying in system memory, and each brings its own back with its next call.
    """

    profile = Profile.STREAM

    def __init__(
        self, components: Sequence[Component], card: Card, ledger: SharedLedger, options: StreamOptions
    ) -> None:
        self._components = components
        self._card = card
        self._ledger = ledger
        self._options = options
        self._asked_bytes: int | None = None
        self._budget_bytes = 0
        self._plans: dict[str, StreamPlan] = {}
        self._streamed: dict[str, StreamedComponent] = {}
        self._whole: dict[tuple[str, str], WeightUnit] = {}
        self._resident: WeightUnit | None = None
        self._alone: set[tuple[str, str]] = set()
        """Calls that ran out of memory beside other components' weights."""

    def set_budget(self, budget_bytes: int | None) -> None:
        """See :meth:`~..placed_model.PlacedModel.set_weights_budget`."""
        self._asked_bytes = budget_bytes
        if self._whole:
            self._take_budget()

    def apply(self) -> None:
        slots = SlotTable(keep_masters=True)
        for component in self._components:
            for call, modules in parts(component).items():
                self._whole[component.name, call] = WeightUnit(slots.slots_of(modules))
        for slot in slots.slots_of([component.module for component in self._components]):
            self._card.resting(slot.tensor)
        self._take_budget()

    def undo(self) -> None:
        self._make_room()
        for name in list(self._streamed):
            self._dissolve(name)
        self._whole.clear()
        self._alone.clear()

    def enter(self, component: Component, call: str) -> None:
        streamed = self._streamed_for(component, call)
        if self._resident is not self._whole[component.name, call] or streamed is not None:
            self._make_room()
        own = streamed.needed_bytes if streamed is not None else self._whole[component.name, call].nbytes
        others = [other for other in self._streamed.values() if other is not streamed]
        for other in others:
            other.rest()
        crowded = own + sum(other.card_bytes for other in others) > self._budget_bytes
        if crowded or (component.name, call) in self._alone:
            for other in others:
                other.evict()
        if streamed is not None:
            streamed.enter(call)
            return
        self._resident = self._whole[component.name, call]
        self._resident.load(self._card)

    def leave(self, component: Component, call: str, *, complete: bool) -> None:
        if component.name in self._streamed:
            self._streamed[component.name].leave(complete=complete)

    def repair(self) -> None:
        for streamed in self._streamed.values():
            streamed.leave()
        if self._resident is not None and not self._resident.loaded:
            self._make_room()

    def rest(self) -> None:
        self._make_room()
        self._alone.clear()
        for streamed in self._streamed.values():
            streamed.leave()
            streamed.rest()
            streamed.restore()

    def shrink(self, component: Component, call: str, lacking_bytes: int | None) -> str | None:
        others = [other for name, other in self._streamed.items() if name != component.name and other.card_bytes]
        if others and (component.name, call) not in self._alone:
            self._alone.add((component.name, call))
            return f"took the other components' weights off the card for the {call}"
        streamed = self._streamed.get(component.name)
        if streamed is None:
            return None
        return streamed.lower(lacking_bytes if lacking_bytes is not None else streamed.needed_bytes // 4)

    def plan_alone(self, component: Component, call: str) -> None:
        """See :meth:`~..placed_model.PlacedModel.plan_alone`."""
        self._alone.add((component.name, call))

    def predicted_step_seconds(self, component: Component) -> float | None:
        """What a call of a streamed component will take; ``None`` is unknown: it has not been measured yet."""
        streamed = self._streamed.get(component.name)
        return streamed.predicted_step_seconds if streamed is not None else None

    def _streamed_for(self, component: Component, call: str) -> StreamedComponent | None:
        """Made when it is first needed: a budget that has grown since makes a text encoder come whole again."""
        found = self._streamed.get(component.name)
        unit = self._whole[component.name, call]
        if component.kind is not ComponentKind.UNET and unit.nbytes <= self._budget_bytes:
            if found is not None:
                self._dissolve(component.name)
            return None
        if found is None:
            chunk_bytes = self._options.chunk_bytes or chunk_bytes_for(unit.nbytes)
            if not can_stream(component, chunk_bytes):
                return None
            found = StreamedComponent(
                component, self._card, self._ledger, chunk_bytes, self._options.slots, self._plans.get(component.name)
            )
            found.set_budget(self._budget_bytes)
            self._streamed[component.name] = found
        return found

    def _dissolve(self, name: str) -> None:
        streamed = self._streamed[name]
        streamed.dissolve()
        if streamed.plan is not None:
            self._plans[name] = streamed.plan
        del self._streamed[name]

    def _take_budget(self) -> None:
        asked = self._asked_bytes
        mine = sum(streamed.card_bytes for streamed in self._streamed.values())
        self._budget_bytes = (self._card.free_bytes() + mine) // 2 if asked is None else asked
        for streamed in self._streamed.values():
            streamed.set_budget(self._budget_bytes)

    def _make_room(self) -> None:
        if self._resident is not None:
            self._resident.evict(self._card)
            self._resident = None


def smallest_ring_bytes(components: Sequence[Component]) -> dict[str, int]:
    """By component that can stream, the least that its weights then take on the card, before it has been traced."""
    least = {}
    for component in components:
        whole = sum(tensor.nbytes for tensor in tensors_of(component.module))
        chunk_bytes = chunk_bytes_for(whole)
        if can_stream(component, chunk_bytes):
            least[component.name] = min(whole, smallest_bytes(component, chunk_bytes))
    return least
