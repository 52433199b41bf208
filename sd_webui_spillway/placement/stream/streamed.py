"""One component under ``stream``: traced in its first call, measured in its second, streamed from then on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...memory.shared_ledger import SharedLedger
from ...units import format_bytes
from ..card import Card
from ..component import Component
from ..placements import OneAtATime
from ..profile import Profile
from .chunks import aligned, cut
from .composition import Composition
from .layout import FEWEST_SLOTS, Layout, Layouts
from .leaves import Layers, layers_of
from .ring import PassClock
from .simulation import Costs
from .trace import Trace


@dataclass(frozen=True)
class StreamPlan:
    """What was learnt of a component; it holds as long as its layers do, however often the profile changes."""

    order: tuple[str, ...]
    """The leaves as a pass calls them."""
    costs: Costs | None = None


class _Tracing:
    """A call with one layer on the card at a time, by which the order of the layers becomes known."""

    def __init__(self, component: Component, card: Card, layers: Layers) -> None:
        self._component = component
        self._swap = OneAtATime(Profile.SEQUENTIAL, [component], card, lambda _: list(layers.called))
        self.trace = Trace(layers.leaves)

    def begin(self, call: str) -> None:
        self._swap.apply()
        self.trace.install()
        self._swap.enter(self._component, call)

    def end(self) -> None:
        self.trace.remove()
        self._swap.undo()


class StreamedComponent:
    """Streams a component whose one call is its ``forward``; between calls and jobs see :class:`Composition`."""

    def __init__(
        self, component: Component, card: Card, ledger: SharedLedger, chunk_bytes: int, slots: int,
        plan: StreamPlan | None,
    ) -> None:
        self.plan = plan
        self._component = component
        self._card = card
        self._ledger = ledger
        self._chunk_bytes = chunk_bytes
        self._slots = slots
        self._budget_bytes = 0
        self._lowered_bytes: int | None = None
        self._tracing: _Tracing | None = None
        self._composition: Composition | None = None
        self._layouts: Layouts | None = None
        self._clock: PassClock | None = None
        self._trace: Trace | None = None
        self._strays_left = self._strays_borne = 1
        """Passes out of order until the next is traced again; twice as many after each, as some alternate for good."""

    @property
    def card_bytes(self) -> int:
        """What this component's weights take on the card now."""
        return self._composition.card_bytes if self._composition is not None else 0

    @property
    def needed_bytes(self) -> int:
        """What they will take in the next call, tracing aside."""
        layout = self._layout()
        return layout.card_bytes + self._held_bytes() if layout is not None else 0

    @property
    def predicted_step_seconds(self) -> float | None:
        """What a call will take by the simulation; ``None``, unknown, until one has been measured."""
        layout = self._layout()
        return self._layouts.step_seconds(layout) if self._layouts is not None and layout is not None else None

    def set_budget(self, budget_bytes: int) -> None:
        """The most that the weights may take on the card, from now on; the smallest ring is the floor."""
        self._budget_bytes = budget_bytes
        self._settle()

    def lower(self, lacking_bytes: int) -> str | None:
        """Take this much less of the card, or as little as possible, until :meth:`restore`; in words what was done,
        ``None`` where there is nothing left to give."""
        layout = self._layout()
        if layout is None or self._layouts is None or layout.card_bytes <= self._layouts.floor_bytes:
            return None
        before = self._held_bytes() + layout.card_bytes
        self._lowered_bytes = before - max(1, lacking_bytes)
        self._settle()
        words = f"{format_bytes(before)} to {format_bytes(self.needed_bytes)}"
        return f"lowered what the {self._component.kind}'s weights take on the card from {words}"

    def restore(self) -> None:
        """Forget what :meth:`lower` did."""
        self._lowered_bytes = None
        self._settle()

    def enter(self, call: str) -> None:
        """Before a call. Raises out-of-memory as the card does; everything is off the card then."""
        composition = self._composed()
        if composition is None:
            self._tracing = _Tracing(self._component, self._card, self._layers())
            self._tracing.begin(call)
            return
        complete = False
        try:
            self._open(composition)
            complete = True
        finally:
            if not complete:
                self._forget_pass()
                composition.evict()

    def leave(self, *, complete: bool = False) -> None:
        """After a call, ``complete`` or failed, or at any other time. Interrupted, it can be called again."""
        if self._tracing is not None:
            self._tracing.end()
            trace, self._tracing = self._tracing.trace, None
            if complete and trace.order:
                self.plan = StreamPlan(tuple(trace.order))
        if self._composition is not None:
            self._composition.ring.end_pass()
            self._look_back(self._composition, complete)

    def rest(self) -> None:
        """The ring given back; what is resident stays."""
        if self._composition is not None:
            self._composition.close()

    def evict(self) -> None:
        """Everything off the card."""
        self.leave()
        if self._composition is not None:
            self._composition.evict()

    def dissolve(self) -> None:
        """Everything as it was found. Interrupted, it can be called again."""
        self.leave()
        if self._composition is not None:
            self._composition.dissolve()
            self._composition = self._layouts = None

    def _composed(self) -> Composition | None:
        """The composition for the component as it is now; ``None`` where its order is not known."""
        if self._composition is not None and self._composition.layout is None and not self._composition.matches():
            self.dissolve()
            self.plan = None
        if self._composition is None and self.plan is not None:
            layers = self._layers()
            if set(self.plan.order) <= layers.leaves.keys():
                self._compose(layers, self.plan)
        return self._composition

    def _compose(self, layers: Layers, plan: StreamPlan) -> None:
        composition = Composition(
            self._component, layers, plan.order, self._chunk_bytes, self._card, self._ledger
        )
        sizes = tuple(chunk.nbytes for chunk in composition.chunks)
        if plan.costs is not None and plan.costs.sizes != sizes:
            plan = replace(plan, costs=None)
        self.plan = plan
        self._layouts = Layouts(plan.costs or Costs((), {}, sizes), self._slots)
        self._composition = composition

    def _open(self, composition: Composition) -> None:
        layout = self._layout()
        if layout is None:
            return
        measuring = self.plan is not None and self.plan.costs is None and len(layout.resident) < len(composition.chunks)
        if measuring or composition.layout != layout:
            composition.close()
        if self._ledger.excess_bytes:
            composition.give_back_pinned()
        if measuring:
            self._clock = composition.ring.clock = PassClock(self._card.link)
        if composition.layout is None:
            composition.open(layout, measuring=measuring)
        else:
            composition.ring.begin_pass()
        if measuring or self._strays_left <= 0:
            self._trace = Trace(composition.layers.leaves)
            self._trace.install()

    def _look_back(self, composition: Composition, complete: bool) -> None:
        """What a pass has taught: how long it took, or that its order is another."""
        trace, clock = self._trace, self._clock
        strayed = composition.ring.strayed
        self._forget_pass()
        if trace is not None and complete:
            order = tuple(trace.order)
            if strayed and not composition.follow(order):
                composition.dissolve()
                self._composition = self._layouts = None
                self.plan = StreamPlan(order)
                return
            if clock is None:
                self._strays_borne *= 2
            else:
                self._measured(composition, clock)
                composition.close()
            self._strays_left = self._strays_borne
        elif strayed:
            self._strays_left -= 1

    def _forget_pass(self) -> None:
        if self._trace is not None:
            self._trace.remove()
        if self._composition is not None:
            self._composition.ring.clock = None
            self._composition.ring.strayed = False
        self._trace = self._clock = None

    def _measured(self, composition: Composition, clock: PassClock) -> None:
        if self.plan is None:
            return
        sizes = tuple(chunk.nbytes for chunk in composition.chunks)
        copied = clock.copy_seconds()
        speed = sum(sizes[index] for index in copied) / max(sum(copied.values()), 1e-9)
        copy_seconds = {index: copied.get(index, size / speed) for index, size in enumerate(sizes)}
        costs = Costs(tuple(clock.compute_seconds()), copy_seconds, sizes)
        self.plan = replace(self.plan, costs=costs)
        self._layouts = Layouts(costs, self._slots)

    def _settle(self) -> None:
        """Give up at once what the budget no longer allows; what it allows in addition comes with the next call."""
        layout = self._layout()
        if self._composition is not None and layout is not None and self._composition.layout not in (None, layout):
            self._composition.close()
        if self._composition is not None and layout is not None:
            self._composition.trim(layout)

    def _layout(self) -> Layout | None:
        if self._layouts is None:
            return None
        budget = self._budget_bytes if self._lowered_bytes is None else min(self._budget_bytes, self._lowered_bytes)
        return self._layouts.within(budget - self._held_bytes())

    def _held_bytes(self) -> int:
        return self._composition.held_bytes if self._composition is not None else 0

    def _layers(self) -> Layers:
        return layers_of(self._component.module, self._chunk_bytes)


def can_stream(component: Component, chunk_bytes: int) -> bool:
    """Whether a component has more than one layer and is used through nothing but its ``forward``."""
    return tuple(component.calls) == ("forward",) and len(layers_of(component.module, chunk_bytes).leaves) > 1


def smallest_bytes(component: Component, chunk_bytes: int) -> int:
    """The least that a component that can stream takes on the card, if it calls its layers as it lists them."""
    layers = layers_of(component.module, chunk_bytes)
    sizes = tuple(
        sum(aligned(tensor.nbytes) for name in names for tensor in layers.leaves[name].tensors)
        for names in cut(tuple(layers.leaves), layers.leaves, chunk_bytes)
    )
    held = sum(tensor.nbytes for tensor in layers.held)
    return held + Layouts(Costs((), {}, sizes), FEWEST_SLOTS).floor_bytes
