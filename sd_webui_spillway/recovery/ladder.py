"""The ladder: the ordered steps that make the retry of a failed call smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..placement.component import Component
from ..placement.placed_model import PlacedModel
from ..placement.profile import Profile
from ..units import MIB
from .vae_layers import cannot_tile_because

_LOWERED_BYTES = 64 * MIB
"""Where free memory is in pieces, a call may lack next to nothing and still not get it."""


class RungKind(str, Enum):
    """What a rung does. The order here is the order in which they are tried."""

    RELEASE = "release caches"
    TILE = "tile"
    LOWER_BUDGET = "lower the budget"
    SMALLER_PLACEMENT = "smaller placement"
    SPLIT_ROWS = "split rows"
    GIVE_UP = "give up"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Rung:
    """One step taken: what, and in words for a person."""

    kind: RungKind
    words: str


@dataclass(frozen=True)
class LadderSwitches:
    """Which rungs may be used. Releasing caches and giving up always may."""

    tile: bool = True
    smaller_placement: bool = True
    split_rows: bool = True


@dataclass
class CallMemory:
    """What worked for one call of one component, remembered for the rest of the job."""

    tiled: bool = False
    rows_per_call: int | None = None


def climb(
    model: PlacedModel,
    component: Component,
    call: str,
    rows: int | None,
    memory: CallMemory,
    switches: LadderSwitches,
    whole_batch_because: Callable[[Component], str | None],
    lacking_bytes: int | None,
    *,
    released: bool = False,
) -> Iterator[Rung]:
    """Take the rungs for one failed call in order; each is in force by the time it is yielded.

    The iterator ends where no smaller way is left. A budget is lowered by ``lacking_bytes``, what the call lacked
    (``None`` is unknown), and by at least twice as much each time that was not enough. ``released`` leaves out the
    first rung, which was taken before.
    """
    if not released:
        yield Rung(RungKind.RELEASE, "released what was cached and tried again")
    if switches.tile and not memory.tiled and can_tile(component, call):
        memory.tiled = True
        yield Rung(RungKind.TILE, f"ran the {call} in strips")
    while switches.smaller_placement and (words := model.shrink(component, call, lacking_bytes)) is not None:
        yield Rung(RungKind.LOWER_BUDGET, words)
        lacking_bytes = 2 * max(lacking_bytes, _LOWERED_BYTES) if lacking_bytes is not None else None
    while switches.smaller_placement:
        smaller = model.smaller(model.profile) if model.profile else None
        if smaller is None:
            break
        before: Profile | None = model.profile
        model.switch(smaller)
        yield Rung(RungKind.SMALLER_PLACEMENT, f"went from {before} to {smaller}")
    if not switches.split_rows or whole_batch_because(component) is not None:
        return
    at_once = memory.rows_per_call or rows or 1
    while at_once > 1:
        at_once = (at_once + 1) // 2
        memory.rows_per_call = at_once
        yield Rung(RungKind.SPLIT_ROWS, f"ran {rows} rows as {at_once} at a time")


def step_down(model: PlacedModel, component: Component, call: str) -> Iterator[Rung]:
    """Before a call, because the user asks for it: one rung that leaves less of the model on the card, if there is one;
    it is in force by the time it is yielded."""
    before = model.profile
    words = model.shrink(component, call, None)
    if words is not None:
        yield Rung(RungKind.LOWER_BUDGET, words)
        return
    smaller = model.smaller(before) if before else None
    if smaller is not None:
        model.switch(smaller)
        yield Rung(RungKind.SMALLER_PLACEMENT, f"went from {before} to {smaller}")


def can_tile(component: Component, call: str) -> bool:
    """Whether this call can run in strips and still give the same picture."""
    child = component.tileable.get(call)
    return child is not None and cannot_tile_because(component.module.get_submodule(child)) is None
