"""The ring: a few slots on the card through which all streamed chunks flow, ordered by marks alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..card import Card
from ..link import Link, Mark
from .chunks import Chunk

NONE = -1
"""No chunk."""


class _Slot:
    def __init__(self, slab: torch.Tensor, link: Link) -> None:
        self.slab = slab
        self.holds = NONE
        """The chunk that was queued last, whether it has arrived yet or not."""
        self.used: Mark = link.mark()
        self.begun: Mark = link.mark()
        self.copied: Mark = link.mark()
        link.set_in_compute(self.used)  # whatever the memory was used for before is done by then


class PassClock:
    """The marks of one pass, for the times it took: computing chunk by chunk, and copying."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._computed: list[tuple[int, Mark, Mark]] = []
        self._copied: dict[int, tuple[Mark, Mark]] = {}

    def begin(self, index: int) -> None:
        begun, done = self._link.mark(), self._link.mark()
        self._computed.append((index, begun, done))
        self._link.set_in_compute(begun)

    def end(self) -> None:
        self._link.set_in_compute(self._computed[-1][2])

    def copying(self, index: int) -> tuple[Mark, Mark]:
        """Marks to set around a copy of this chunk."""
        self._copied[index] = begun, done = self._link.mark(), self._link.mark()
        return begun, done

    def compute_seconds(self) -> list[tuple[int, float]]:
        """By visit in order: the chunk, and how long it was computed. The host waits for the pass to end."""
        return [(index, self._link.seconds_between(begun, done)) for index, begun, done in self._computed]

    def copy_seconds(self) -> dict[int, float]:
        """By chunk that was copied. The host waits for the copies."""
        return {index: self._link.seconds_between(begun, done) for index, (begun, done) in self._copied.items()}


class Ring:
    """Knows which slot holds which chunk and what is due there next.

    Chunk *i* of those that stream is always in slot *i* modulo their number, so that its weights are views into that
    slot for as long as the ring is open. A leaf whose chunk is not :attr:`current` calls :meth:`visit` before it runs;
    that is all a pass needs, and the order of the visits is only a forecast.
    """

    def __init__(self, chunks: Sequence[Chunk], card: Card, link: Link) -> None:
        self._chunks = chunks
        self._card = card
        self._link = link
        self._slots: list[_Slot] = []
        self._slot_of: Mapping[int, int] = {}
        self._targets: Mapping[int, torch.Tensor] = {}
        """By chunk, the part of its slot that it fills."""
        self._visits: Sequence[int] = ()
        self._position = NONE
        self.current = NONE
        """The chunk whose leaves may run now."""
        self.strayed = False
        """Whether this pass has left the forecast."""
        self.clock: PassClock | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._slots)

    @property
    def nbytes(self) -> int:
        """What the slots take on the card."""
        return sum(slot.slab.nbytes for slot in self._slots)

    def open(self, streamed: Sequence[int], visits: Sequence[int], slots: int) -> None:
        """Take the slots, point every streamed chunk at its own, and begin to fill them for these visits.

        Raises:
            torch.cuda.OutOfMemoryError: they do not fit; :meth:`close` mends.
        """
        in_turn = dict.fromkeys((*visits, *streamed))
        size = max((self._chunks[index].nbytes for index in streamed), default=0)
        slabs = [self._card.slab(size) for _ in range(min(slots, len(streamed)))]
        self._slots = [_Slot(slab, self._link) for slab in slabs]
        self._slot_of = {index: number % len(slabs) for number, index in enumerate(in_turn)}
        self._targets = {i: slabs[number][: self._chunks[i].nbytes] for i, number in self._slot_of.items()}
        self._visits = visits
        for index, number in self._slot_of.items():
            self._chunks[index].place(slabs[number])
        self.begin_pass()

    def close(self) -> None:
        """Every streamed weight at its master, edits included, and the slots given back. Interrupted, it can be called
        again."""
        self.end_pass()
        for slot in self._slots:
            self._link.compute_waits(slot.copied)  # or the memory would have a new owner with a copy still to arrive
        for index in self._slot_of:
            self._chunks[index].rest()
        self._slots, self._slot_of, self._targets = [], {}, {}

    def follow(self, visits: Sequence[int]) -> None:
        """Forecast these visits from the next pass on, all of chunks that :meth:`open` was told of."""
        self._visits = visits

    def begin_pass(self) -> None:
        """Queue what the first visits need and is not there: nothing, after a pass as forecast."""
        self.strayed = False
        self._position = NONE
        for number in range(len(self._slots)):
            self._queue_next(number)

    def visit(self, index: int) -> None:
        """The leaves of this chunk run from now on, whatever was forecast."""
        self._finish()
        number = self._slot_of.get(index)
        if number is not None:
            self._advance(index)
            slot = self._slots[number]
            if slot.holds != index:
                self._fill(slot, index)
            self._link.compute_waits(slot.copied)
        if self.clock is not None:
            self.clock.begin(index)
        self.current = index

    def end_pass(self) -> None:
        """After a pass, failed or not. What is edited in place has reached the masters."""
        self._finish()

    def _finish(self) -> None:
        index = self.current
        if index == NONE:
            return
        number = self._slot_of.get(index)
        if number is not None:
            slot = self._slots[number]
            if self._chunks[index].write_back():
                slot.holds = NONE
            self._link.set_in_compute(slot.used)
        if self.clock is not None:
            self.clock.end()
        self.current = NONE
        if number is not None:
            self._queue_next(number)

    def _advance(self, index: int) -> None:
        for step in range(1, len(self._visits) + 1):
            position = (self._position + step) % len(self._visits)
            if self._visits[position] == index:
                self._position = position
                self.strayed |= step > 1
                return
        self.strayed = True

    def _queue_next(self, number: int) -> None:
        """Queue the chunk that is due next in this slot, unless the slot holds it."""
        slot = self._slots[number]
        for step in range(1, len(self._visits) + 1):
            index = self._visits[(self._position + step) % len(self._visits)]
            if self._slot_of[index] == number:
                if slot.holds != index:
                    self._fill(slot, index)
                return

    def _fill(self, slot: _Slot, index: int) -> None:
        begun, done = self.clock.copying(index) if self.clock is not None else (slot.begun, slot.copied)
        slot.holds = NONE
        self._chunks[index].upload(self._targets[index], slot.used, begun, done)
        slot.holds, slot.copied = index, done
