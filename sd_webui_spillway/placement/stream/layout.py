"""Layouts: which chunks stay on the card and how many slots the others flow through, for a budget in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...units import MIB
from .simulation import Costs, residence_order, step_seconds

FEWEST_SLOTS = 2
"""One chunk is computed while the next is copied."""
_SMALLEST_CHUNK, _LARGEST_CHUNK, _CHUNKS = 32 * MIB, 96 * MIB, 80


def chunk_bytes_for(weights_bytes: int) -> int:
    """The size of chunks for a component of this size: smaller ones cost more launches, larger ones larger slots."""
    return min(_LARGEST_CHUNK, max(_SMALLEST_CHUNK, weights_bytes // _CHUNKS))


@dataclass(frozen=True)
class Layout:
    """What is where."""

    resident: frozenset[int]
    slots: int
    card_bytes: int
    """What chunks and slots take on the card; what is held comes on top."""


class Layouts:
    """Every layout worth having for one composition, from the smallest on the card to the one that keeps it all."""

    def __init__(self, costs: Costs, slots: int) -> None:
        """Without ``costs.visits`` (not measured yet) only what costs nothing to keep is ever resident."""
        order: Sequence[int] = tuple(residence_order(costs, slots))
        residents = [frozenset(order[:count]) for count in range(len(order) + 1)]
        every = [
            Layout(resident, count, costs.card_bytes(resident, count))
            for resident in residents for count in {FEWEST_SLOTS, slots}
        ]
        self._smallest = min(every, key=lambda layout: layout.card_bytes)
        self._seconds = {
            layout: step_seconds(costs, layout.resident, layout.slots) for layout in every if costs.visits
        }
        self._layouts = sorted(
            every, key=lambda one: (-round(self._seconds.get(one, 0), 7), one.slots, len(one.resident))
        )

    @property
    def floor_bytes(self) -> int:
        """What the smallest layout takes on the card."""
        return self._smallest.card_bytes

    def within(self, budget_bytes: int) -> Layout:
        """The fastest layout within a budget, by the simulation; of equal ones the one that copies least. Where none
        fits, the smallest."""
        fitting = [layout for layout in self._layouts if layout.card_bytes <= budget_bytes]
        return fitting[-1] if fitting else self._smallest

    def step_seconds(self, layout: Layout) -> float | None:
        """What a step would take; ``None``, unknown, before anything was measured."""
        return self._seconds.get(layout)
