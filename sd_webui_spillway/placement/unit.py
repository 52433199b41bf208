"""Weight units: the parameters and buffers that come to the card and leave it together."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch
from torch import nn

from .card import Card


class WeightSlot:
    """One parameter or buffer. Its master copy is in system memory; on the card there is at most one copy of it.

    With ``keep_master`` the master stays while the copy is on the card, so that letting go copies nothing; without it
    the master is dropped, for weights that are to stay on the card. The module's tensor object stays the same
    throughout: only its ``.data`` is pointed elsewhere, so that LoRA code and ``state_dict`` holders keep seeing the
    tensor they know. A tensor shared by several units is one slot and stays until the last of them lets go.
    """

    def __init__(self, tensor: torch.Tensor, *, keep_master: bool) -> None:
        self.tensor = tensor
        self.nbytes = tensor.nbytes
        self._keep_master = keep_master
        self._master: torch.Tensor | None = None
        self._copy: torch.Tensor | None = None
        self._version = 0
        self._users = 0

    @property
    def on_card(self) -> bool:
        return self._copy is not None

    def acquire(self, card: Card) -> None:
        """Bring the tensor to the card unless it is there already.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit; nothing has changed.
        """
        if self._copy is None:
            resting = card.resting(self.tensor)
            self._copy = card.put(resting)
            self._master = resting if self._keep_master else None
            self.nbytes = resting.nbytes
            self.tensor.data = self._copy
            self._version = self.tensor._version
        self._users += 1

    def release(self, card: Card) -> None:
        """Let go; with the last user gone the tensor is back on its master, edits made meanwhile included."""
        if self._copy is None:
            return
        if self._users > 1:
            self._users -= 1
            return
        if self._master is None or self._edited():
            data = self.tensor.data
            self._master = card.fetch(data) if card.holds(data) else data
        self.tensor.data = self._master
        self._master = self._copy = None
        self._users = 0

    def _edited(self) -> bool:
        """An in-place edit raises the version; a replaced ``.data`` has another address."""
        copy = self._copy
        return copy is not None and (
            self.tensor._version != self._version or self.tensor.data_ptr() != copy.data_ptr()
        )


class WeightUnit:
    """Slots that move together: a component, a block or a layer."""

    def __init__(self, slots: tuple[WeightSlot, ...]) -> None:
        self.slots = slots
        self._held: list[WeightSlot] = []

    @property
    def nbytes(self) -> int:
        return sum(slot.nbytes for slot in self.slots)

    @property
    def loaded(self) -> bool:
        return len(self._held) == len(self.slots)

    def load(self, card: Card) -> None:
        """Bring every slot to the card, or none.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit; what this call had brought is back in system memory.
        """
        if self.loaded:
            return
        complete = False
        try:
            # What is held is always the first of the slots: an eviction that was interrupted began at the end.
            for slot in self.slots[len(self._held) :]:
                slot.acquire(card)
                self._held.append(slot)
            complete = True
        finally:
            if not complete:
                self.evict(card)

    def evict(self, card: Card) -> None:
        """Let go of every slot that this unit holds."""
        while self._held:
            self._held[-1].release(card)
            self._held.pop()


class SlotTable:
    """One slot per distinct tensor, however many modules share it."""

    def __init__(self, *, keep_masters: bool) -> None:
        self._keep_masters = keep_masters
        self._slots: dict[int, WeightSlot] = {}

    def slots_of(self, modules: Iterable[nn.Module], without: Iterable[nn.Module] = ()) -> tuple[WeightSlot, ...]:
        """The slots of all parameters and buffers of these modules, each once; those of ``without`` left out."""
        left_out = {id(tensor) for module in without for tensor in chain(module.parameters(), module.buffers())}
        found: dict[int, WeightSlot] = {}
        for module in modules:
            for tensor in chain(module.parameters(), module.buffers()):
                if id(tensor) in left_out:
                    continue
                slot = self._slots.get(id(tensor))
                if slot is None:
                    slot = self._slots[id(tensor)] = WeightSlot(tensor, keep_master=self._keep_masters)
                found[id(tensor)] = slot
        return tuple(found.values())
