"""The cells of a run, in the order in which they tell the most, and roughly how long each takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...placement.profile import Profile
from .measuring import DEDICATED_STEPS, MOST_STEPS, WARM_UP_STEPS
from .models import ModelSpec
from .peers import Peer

What = Literal["step", "switch"]
START_SECONDS = 15.0
"""Roughly, for a process to import what it needs. All of a model's start at once."""
_COPY_BYTES_PER_SECOND = 2.5e9
"""Roughly, for making a model in system memory."""
_SWITCHING_CALLS = 20
_SLOW_SECONDS = 1.0
"""A step expected to be slower is not measured again in later rounds: what makes it slow does not waver."""


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    model: str
    peer: str
    budget_bytes: int | None
    """What weights may take; ``None`` for a peer that cannot be told."""
    round: int
    what: What = "step"

    @property
    def key(self) -> dict[str, Any]:
        """By which the results know it."""
        return {
            "model": self.model, "peer": self.peer, "budget_bytes": self.budget_bytes, "round": self.round,
            "what": self.what,
        }  # fmt: skip

    def __str__(self) -> str:
        budget = f" in {self.budget_bytes / 1e9:g} GB" if self.budget_bytes is not None else ""
        return f"{self.model} {self.peer}{budget}{' (switching)' if self.what == 'switch' else ''}"


def plan(specs: Sequence[ModelSpec], peers: Mapping[str, Peer], rounds: int) -> list[Cell]:
    """Model by model. The first round goes peer by peer, the most telling first, so that a short run answers as much as
    it can; later ones go budget by budget, so that processes take turns."""
    return [cell for spec in specs for number in range(rounds) for cell in _round(spec, peers, number)]


def estimate_seconds(cell: Cell, spec: ModelSpec, peer: Peer, fewest_steps: int, *, placed: bool = False) -> float:
    """Roughly, a cell in a process that is there; where the model is not placed there yet, that as well."""
    step = peer.guessed_seconds(spec, cell.budget_bytes)
    steps = WARM_UP_STEPS + max(fewest_steps, min(MOST_STEPS, int(3 / step)))
    seconds = 1.0 + 2 * DEDICATED_STEPS * spec.dedicated_seconds
    seconds += _SWITCHING_CALLS * step if cell.what == "switch" else steps * step
    return seconds if placed else seconds + 3 * spec.weights_bytes / _COPY_BYTES_PER_SECOND


def plan_seconds(cells: Sequence[Cell], specs: Mapping[str, ModelSpec], peers: Mapping[str, Peer], steps: int) -> float:
    """Roughly, all of them, starting included."""
    seconds = START_SECONDS * len({cell.model for cell in cells})
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        place = (cell.model, cell.peer)
        seconds += estimate_seconds(cell, specs[cell.model], peers[cell.peer], steps, placed=place in seen)
        seen.add(place)
    return seconds


def _round(spec: ModelSpec, peers: Mapping[str, Peer], number: int) -> list[Cell]:
    if number == 0 and Profile.STREAM.value in peers:
        switch = [Cell(spec.name, Profile.STREAM.value, spec.budgets_bytes[1], 0, "switch")]
    else:
        switch = []  # a process that has streamed before has no first switch
    found = [
        (rank, place, Cell(spec.name, peer.name, budget, number))
        for rank, peer in enumerate(peers.values())
        for place, budget in _budgets(spec, peer)
        if number == 0 or peer.guessed_seconds(spec, budget) <= _SLOW_SECONDS
    ]
    if number:
        found.sort(key=lambda one: (one[1], one[0]))
    return switch + [cell for _, _, cell in found]


def _budgets(spec: ModelSpec, peer: Peer) -> Iterator[tuple[int, int | None]]:
    return enumerate(spec.budgets_bytes) if peer.budgeted else enumerate([None])
