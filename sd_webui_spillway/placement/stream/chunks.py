"""Chunks: the pieces of a component that come to the card with one copy each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from ...memory.shared_ledger import SharedLedger
from ..card import Card
from ..link import Link, Mark
from .host_slab import HostSlab
from .leaves import Leaf

ALIGNMENT = 512
"""Bytes: torch's allocator never gives less (``kMinBlockSize`` in ``c10/cuda/CUDACachingAllocator``), and kernels
choose their way by it."""


def cut(order: Sequence[str], leaves: Mapping[str, Leaf], chunk_bytes: int) -> tuple[tuple[str, ...], ...]:
    """The names of the leaves of each chunk, in the order of their first calls.

    No chunk exceeds ``chunk_bytes``, except a leaf that does so alone.
    """
    chunks: list[tuple[str, ...]] = []
    names: list[str] = []
    size = 0
    for name in dict.fromkeys(order):
        leaf_bytes = sum(aligned(tensor.nbytes) for tensor in leaves[name].tensors)
        if names and size + leaf_bytes > chunk_bytes:
            chunks.append(tuple(names))
            names, size = [], 0
        names.append(name)
        size += leaf_bytes
    return (*chunks, tuple(names)) if names else tuple(chunks)


def visits(order: Sequence[str], chunk_of: Mapping[str, int], resident: frozenset[int]) -> tuple[int, ...]:
    """The streamed chunks in the order in which a pass comes to them, each as often as it comes back to it."""
    passed = [chunk for name in order if (chunk := chunk_of[name]) not in resident]
    return tuple(passed[:1]) + tuple(after for before, after in pairwise(passed) if after != before)


def aligned(size_bytes: int) -> int:
    """The bytes that a tensor of this size takes of a chunk."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


class _Weight:
    """One weight of a chunk: the module's own tensor object, and its master copy in system memory."""

    def __init__(self, tensor: torch.Tensor, offset: int, slab: HostSlab) -> None:
        self.tensor = tensor
        self.offset = offset
        self.master = slab.view(offset, tensor)
        self._data = tensor.data
        self._version = 0

    def point(self, data: torch.Tensor) -> None:
        """Let the module's tensor show this memory."""
        self.tensor.data = self._data = data
        self._version = self.tensor._version

    @property
    def edited(self) -> bool:
        """An in-place edit raises the version; a replaced ``.data`` has another address."""
        return self.tensor._version != self._version or self.replaced

    @property
    def replaced(self) -> bool:
        return self.tensor.data_ptr() != self._data.data_ptr()

    @property
    def fits(self) -> bool:
        """Whether what the tensor holds now has the form that the master has."""
        tensor, master = self.tensor, self.master
        return tensor.dtype is master.dtype and tensor.shape == master.shape and tensor.stride() == master.stride()

    def write_back(self, card: Card) -> bool:
        """Copy an edit to the master; whether the memory that this weight is pointed at has missed it."""
        replaced = self.replaced
        if card.holds(self.tensor):
            card.fetch_into(self.tensor, self.master)
        else:
            with torch.no_grad():
                self.master.copy_(self.tensor)
        self.point(self._data)
        return replaced


class Chunk:
    """Weights that share a slab. Their masters are in system memory; on the card there is at most one copy of them:
    in :attr:`slab` where the chunk is resident, or in a slot of the ring, which others use in turn. Or the card reads
    the masters themselves, in place."""

    def __init__(self, tensors: Sequence[torch.Tensor], card: Card, link: Link, ledger: SharedLedger) -> None:
        """Move the weights, which rest in system memory, into a slab of their own.

        Raises:
            MemoryError: the system has not as much; no weight has moved.
        """
        self._card = card
        self._link = link
        self.nbytes = sum(aligned(tensor.nbytes) for tensor in tensors)
        self.slab: torch.Tensor | None = None
        """The copy of a resident chunk; ``None`` while there is none."""
        self.mapped: torch.Tensor | None = None
        """The masters as the card sees them, where it reads them in place."""
        self.copied: Mark = link.mark()
        self._weights: list[_Weight] = []
        with torch.inference_mode(False), torch.no_grad():
            self.host = HostSlab(self.nbytes, link, ledger)
            offset = 0
            for tensor in tensors:
                weight = _Weight(tensor, offset, self.host)
                weight.master.copy_(card.resting(tensor))
                self._weights.append(weight)
                offset += aligned(tensor.nbytes)
        self.rest()

    @property
    def fits(self) -> bool:
        """Whether every weight still has the form of its master."""
        return all(weight.fits for weight in self._weights)

    def rest(self) -> None:
        """Every weight at its master. Edits have to be written back first.

        A weight that no longer has its master's form is left as it is, in system memory.
        """
        for weight in self._weights:
            if weight.fits:
                weight.point(self._card.resting(weight.master))
            elif self._card.holds(weight.tensor) or self._link.maps(weight.tensor):
                weight.point(self._card.fetch(weight.tensor.data))

    def place(self, slab: torch.Tensor) -> None:
        """Point the weights at their places in a slab on the card, whatever is there now."""
        with torch.inference_mode(False), torch.no_grad():
            for weight in self._weights:
                if weight.fits:
                    master = weight.master
                    flat = slab[weight.offset : weight.offset + master.nbytes].view(master.dtype)
                    weight.point(flat.as_strided(master.shape, master.stride()))

    def upload(self, slab: torch.Tensor, after: Mark, begun: Mark, done: Mark) -> None:
        """Queue the copy of the whole chunk into a slab of its size on the card."""
        self._link.upload(self.host.bytes, slab, after, begun, done)
        self._card.moved_bytes += self.nbytes

    def write_back(self) -> bool:
        """Copy what was edited in place, or replaced, to the masters; whether the copy on the card has missed an edit.

        The weights have to be in place. Interrupted, it can be called again.
        """
        missed = False
        if self.mapped is not None and any(weight.replaced for weight in self._weights):
            self._link.drain()  # what was queued reads the masters
        for weight in self._weights:
            edited = weight.edited if self.mapped is None else weight.replaced  # in place, it is the master already
            if edited and weight.fits:
                missed |= weight.write_back(self._card)
        return missed

    def make_resident(self) -> None:
        """Bring a copy of its own to the card, to stay.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit; nothing has changed.
        """
        if self.slab is not None:
            return
        if self.mapped is not None:
            self.write_back()
        slab = self._card.slab(self.nbytes)
        free = self._link.mark()
        self._link.set_in_compute(free)
        self.upload(slab, free, self._link.mark(), self.copied)
        self._link.compute_waits(self.copied)
        self.place(slab)
        self.slab, self.mapped = slab, None

    def read_in_place(self) -> bool:
        """Have the card read the masters; the copy of its own is given up. ``False``, and nothing has changed, where
        they cannot be pinned.

        Raises:
            UnavailableError: this card does not read in place; nothing has changed but that they may be pinned.
        """
        if self.mapped is not None:
            return True
        if not self.host.pin():
            return False
        mapped = self._link.mapped(self.host.bytes)
        self.write_back()
        self.place(mapped)
        self.mapped, self.slab = mapped, None
        return True

    def evict(self) -> None:
        """Give up the copy of its own, or reading in place; edits reach the masters first. Interrupted, it can be
        called again."""
        if self.mapped is not None:
            self._link.drain()  # an edit in place may still be queued
        if self.slab is not None or self.mapped is not None:
            self.write_back()
            self.rest()
            self.slab = self.mapped = None
