"""The ``spill`` placement: weights within the budget on the card, the others read in place, activations never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...memory.shared_ledger import SharedLedger
from ...units import format_bytes
from ..card import Card
from ..component import Component
from ..profile import Profile
from ..stream.chunks import Chunk
from ..stream.leaves import tensors_of
from ..unit import WeightSlot, WeightUnit
from .pieces import Cut, Group, SpillOptions, cut_up
from .rows import RowCount
from .suffering import suffering


@dataclass(frozen=True, eq=False)
class _Piece:
    group: Group
    chunk: Chunk

    @property
    def placed(self) -> bool:
        return self.chunk.slab is not None or self.chunk.mapped is not None

    def to_card(self) -> None:
        self.chunk.make_resident()
        self.chunk.host.unpin()


class Spilling:
    """Every weight of the model is where the card can use it for as long as the placement is in force: nothing moves
    from one call to the next, and no layer has a hook. What suffers least from being read in place spills first
    (:mod:`.suffering`); how many rows the layers multiply is counted in the first call of each component.

    An edit in place of a spilled weight is an edit of its master. Whoever keeps a tensor that views a spilled weight
    must let go of it before the profile changes: the card cannot read that memory any more then.
    """

    profile = Profile.SPILL

    def __init__(
        self, components: Sequence[Component], card: Card, ledger: SharedLedger, options: SpillOptions
    ) -> None:
        self._components = components
        self._card = card
        self._ledger = ledger
        self._options = options
        self._asked_bytes: int | None = None
        self._budget_bytes = 0
        self._lowered_bytes: int | None = None
        self._rows: dict[Group, int] = {}
        self._counted: set[str] = set()
        """Components whose rows are known."""
        self._counting: RowCount | None = None
        self._cut: Cut | None = None
        self._known: frozenset[int] = frozenset()
        self._pieces: list[_Piece] = []
        self._held = WeightUnit(())
        self._unchecked = False
        """A job begins: the components may be other ones than were cut."""
        self._due = False
        """There may be room on the card for more."""

    @property
    def card_bytes(self) -> int:
        """What the weights take on the card now."""
        held = self._held.nbytes if self._held.loaded else 0
        return held + sum(piece.chunk.nbytes for piece in self._pieces if piece.chunk.slab is not None)

    def set_budget(self, budget_bytes: int | None) -> None:
        """See :meth:`~..placed_model.PlacedModel.set_weights_budget`."""
        self._asked_bytes = budget_bytes
        if self._cut is not None:
            self._take_budget()
            self._settle(grow=False)

    def apply(self) -> None:
        """
        Raises:
            UnavailableError: the card does not read in place; the weights rest in system memory again.
        """
        complete = False
        try:
            self._compose()
            self._take_budget()
            self._settle(grow=True)
            complete = True
        finally:
            if not complete:
                self.undo()

    def undo(self) -> None:
        self.leave()
        for piece in self._pieces:
            piece.chunk.evict()
            piece.chunk.host.unpin()
        self._held.evict(self._card)
        self._pieces, self._held, self._cut, self._known = [], WeightUnit(()), None, frozenset()
        self._lowered_bytes = None

    def enter(self, component: Component, call: str) -> None:
        if self._unchecked and not self._matches():
            self.undo()
            self._compose()
            self._take_budget()
        self._unchecked = False
        if self._due or self._ledger.excess_bytes:
            self._settle(grow=True)
        if component.name not in self._counted and self._cut is not None:
            self._counting = RowCount(self._cut.multiplied[component.name])

    def leave(self, component: Component | None = None, call: str = "", *, complete: bool = False) -> None:
        counting, self._counting = self._counting, None
        if counting is None:
            return
        counting.remove()
        if complete and component is not None:
            self._rows.update(counting.rows)
            self._counted.add(component.name)
            self._due = True

    def repair(self) -> None:
        """Nothing moves within a call. What could not be moved before one is moved before the next."""
        self.leave()
        self._due = True

    def rest(self) -> None:
        self.leave()
        for piece in self._pieces:
            if piece.chunk.mapped is not None:
                piece.chunk.write_back()
        self._unchecked = True
        self._due |= self._lowered_bytes is not None
        self._lowered_bytes = None

    def shrink(self, component: Component, call: str, lacking_bytes: int | None) -> str | None:
        before = self._aimed_bytes()
        self._lowered_bytes = before - max(1, before // 4 if lacking_bytes is None else lacking_bytes)
        self._settle(grow=False)
        after = self._aimed_bytes()
        if after >= before:
            return None
        words = f"{format_bytes(before)} to {format_bytes(after)}"
        return f"lowered what the weights take on the card from {words}; the rest is read in place"

    def _compose(self) -> None:
        self._cut = cut = cut_up(self._components, self._options)
        self._held = WeightUnit(tuple(WeightSlot(tensor, keep_master=True) for tensor in cut.held))
        for group, tensors in cut.pieces:
            self._pieces.append(_Piece(group, Chunk(tensors, self._card, self._card.link, self._ledger)))
        self._known = self._tensor_ids()
        self._due = True

    def _settle(self, *, grow: bool) -> None:
        """Let go of what the budget does not allow; with ``grow`` also bring what it does.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit; every weight that was usable still is.
        """
        self._held.load(self._card)
        ranked = self._ranked()
        resident = self._wanted(ranked)
        refused = [piece for piece in ranked if piece not in resident and not piece.chunk.read_in_place()]
        missing = [piece for piece in ranked if not piece.placed]
        self._check_room(sum(piece.chunk.nbytes for piece in missing), any(piece in refused for piece in missing))
        for piece in missing:
            piece.to_card()
        if not grow:
            self._due = True
            return
        for piece in reversed(ranked):
            if piece in resident and piece.chunk.mapped is not None:
                piece.to_card()
                refused = [one for one in refused if not one.chunk.read_in_place()]  # there is more to be pinned now
        for piece in reversed(ranked):
            if self._ledger.excess_bytes and piece.chunk.mapped is not None:
                piece.to_card()
        self._due = False

    def _check_room(self, missing_bytes: int, refused: bool) -> None:
        free = self._card.free_bytes()
        if refused and missing_bytes > free:
            raise torch.cuda.OutOfMemoryError(
                f"Out of memory: {format_bytes(missing_bytes)} of weights cannot be read in place, because the cap on "
                f"shared memory is {format_bytes(self._ledger.cap_bytes)} or the system refuses to pin them, and "
                f"{format_bytes(free)} are free on the card."
            )

    def _ranked(self) -> list[_Piece]:
        """From what suffers least to what suffers most."""
        return sorted(
            self._pieces, key=lambda one: suffering(one.group.reading, one.group.kind, self._rows.get(one.group))
        )

    def _wanted(self, ranked: Sequence[_Piece]) -> list[_Piece]:
        """What stays on the card: of what suffers most, as much as the budget allows."""
        left = self._budget_bytes if self._lowered_bytes is None else min(self._budget_bytes, self._lowered_bytes)
        left -= self._held.nbytes
        resident = []
        for piece in reversed(ranked):
            if piece.chunk.nbytes <= left:
                resident.append(piece)
                left -= piece.chunk.nbytes
        return resident

    def _aimed_bytes(self) -> int:
        """What the weights take on the card, or are about to take."""
        wanted = sum(piece.chunk.nbytes for piece in self._wanted(self._ranked()))
        return max(self.card_bytes, self._held.nbytes + wanted)

    def _matches(self) -> bool:
        """Whether the components still are what was cut: the same tensors, each of the form it had."""
        return self._known == self._tensor_ids() and all(piece.chunk.fits for piece in self._pieces)

    def _tensor_ids(self) -> frozenset[int]:
        return frozenset(id(tensor) for component in self._components for tensor in tensors_of(component.module))

    def _take_budget(self) -> None:
        asked = self._asked_bytes
        self._budget_bytes = (self._card.free_bytes() + self.card_bytes) // 2 if asked is None else asked
        self._due = True
