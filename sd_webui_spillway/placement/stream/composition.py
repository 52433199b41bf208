"""A traced component cut into chunks: some resident, the others in the ring, a few weights held beside both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from ...memory.shared_ledger import SharedLedger
from ..card import Card
from ..component import Component
from ..unit import WeightSlot, WeightUnit
from .chunks import Chunk, cut, visits
from .layout import Layout
from .leaves import Layers, tensors_of
from .ring import Ring

_OFTEN = 1.5
"""Visits to a chunk in one pass, on average, from which on a new cut pays, where each leaf is called once."""


class Composition:
    """Owns where a component's weights are from its making to :meth:`dissolve`.

    Between :meth:`open` and :meth:`close` the component can be called; closed, every weight that does not stay on the
    card shows its master in system memory, where it can be read, edited and saved.
    """

    def __init__(
        self, component: Component, layers: Layers, order: Sequence[str], chunk_bytes: int, card: Card,
        ledger: SharedLedger,
    ) -> None:
        """Move the weights, which rest in system memory, into the chunks' slabs.

        Args:
            layers: of the component.
            order: the names of its leaves as a pass calls them.

        Raises:
            MemoryError: the system has not as much; the weights rest in system memory, wherever there.
        """
        self._component = component
        self.layers = layers
        called = layers.without(frozenset(layers.leaves) - set(order))
        self._card = card
        self._ledger = ledger
        self._order = order
        chunks = cut(order, called.leaves, chunk_bytes)
        self._chunk_of = {name: index for index, names in enumerate(chunks) for name in names}
        self.chunks = [
            Chunk([t for name in names for t in called.leaves[name].tensors], card, card.link, ledger)
            for names in chunks
        ]
        self._known = self._tensor_ids()
        self._held = WeightUnit(tuple(WeightSlot(tensor, keep_master=True) for tensor in called.held))
        self.ring = Ring(self.chunks, card, card.link)
        self._hooks: dict[int, list[RemovableHandle]] = {}
        self.layout: Layout | None = None
        """What is in force; ``None`` while closed."""

    @property
    def held_bytes(self) -> int:
        return self._held.nbytes

    @property
    def card_bytes(self) -> int:
        """What the component's weights take on the card now."""
        held = self._held.nbytes if self._held.loaded else 0
        return held + sum(chunk.nbytes for chunk in self.chunks if chunk.slab is not None) + self.ring.nbytes

    def matches(self) -> bool:
        """Whether the component still is what was cut: the same tensors, each of the form it had. Only while closed."""
        return self._known == self._tensor_ids() and all(chunk.fits for chunk in self.chunks)

    def open(self, layout: Layout, *, measuring: bool = False) -> None:
        """Bring to the card what stays there, and the ring; ``measuring`` has the ring told of resident chunks too.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit; :meth:`evict` mends.
        """
        self.trim(layout)
        self._held.load(self._card)
        streamed = [index for index in range(len(self.chunks)) if index not in layout.resident]
        self._pin(streamed)
        for index in sorted(layout.resident):
            self.chunks[index].make_resident()
        self._hook(range(len(self.chunks)) if measuring else streamed)
        self.ring.open(streamed, visits(self._order, self._chunk_of, layout.resident), layout.slots)
        self.layout = layout

    def close(self) -> None:
        """Give back the ring. What is resident stays. Interrupted, it can be called again."""
        self.ring.close()
        self.layout = None

    def trim(self, layout: Layout) -> None:
        """Closed: give up what is resident and would not be in this layout."""
        for index, chunk in enumerate(self.chunks):
            if index not in layout.resident:
                chunk.evict()

    def evict(self) -> None:
        """Everything off the card. Interrupted, it can be called again."""
        self.close()
        for chunk in self.chunks:
            chunk.evict()
        self._held.evict(self._card)

    def dissolve(self) -> None:
        """Every weight in system memory, nothing pinned, no hook left. Interrupted, it can be called again."""
        self.evict()
        for chunk in self.chunks:
            chunk.host.unpin()
        self._hook(())

    def follow(self, order: Sequence[str]) -> bool:
        """Forecast this order from now on; ``False`` where a new cut would serve it clearly better, or where it comes
        to leaves that had to be held."""
        if not set(order) <= self._chunk_of.keys():
            return False
        resident = self.layout.resident if self.layout else frozenset()
        forecast = visits(order, self._chunk_of, resident)
        if len(forecast) > _OFTEN * len(set(forecast)) and len(set(order)) == len(order):
            return False
        self._order = order
        self.ring.follow(forecast)
        return True

    def give_back_pinned(self) -> None:
        """Unpin chunks until the ledger is within a cap that was lowered; they flow on, slower."""
        for chunk in self.chunks:
            if not self._ledger.excess_bytes:
                return
            chunk.host.unpin()

    def _pin(self, streamed: Sequence[int]) -> None:
        """As many of these as the ledger grants. What is pinned and does not stream makes room for them."""
        spare = [chunk for index, chunk in enumerate(self.chunks) if index not in streamed and chunk.host.pinned]
        for index in streamed:
            while not self.chunks[index].host.pin() and spare:
                spare.pop().host.unpin()

    def _hook(self, indices: Sequence[int]) -> None:
        """One hook on every leaf of these chunks, and none on any other."""
        for index in [index for index in self._hooks if index not in indices]:
            for handle in self._hooks.pop(index):
                handle.remove()
        hooked = frozenset(self._hooks)
        for name, index in self._chunk_of.items():
            if index in indices and index not in hooked:
                module = self.layers.leaves[name].module
                handle = module.register_forward_pre_hook(_check(self.ring, index), prepend=True)
                self._hooks.setdefault(index, []).append(handle)

    def _tensor_ids(self) -> frozenset[int]:
        return frozenset(map(id, tensors_of(self._component.module)))


def _check(ring: Ring, index: int) -> Callable[[nn.Module, Any], None]:
    def check(module: nn.Module, args: Any) -> None:
        if ring.current != index:
            ring.visit(index)

    return check
