"""System memory for the master copies of one chunk: exactly as large as it has to be, pinned or not."""

from __future__ import annotations

import mmap
import weakref
from dataclasses import dataclass

import torch

from ...memory.shared_ledger import SharedLedger
from ..link import Link


@dataclass
class _Pin:
    """What has been pinned, kept apart from the slab so that a finalizer can undo it."""

    link: Link
    ledger: SharedLedger
    whole: torch.Tensor
    pinned: bool = False

    def take(self) -> bool:
        if self.pinned:
            return True
        if not self.ledger.reserve(self.whole.nbytes):
            return False
        try:
            self.pinned = self.link.pin(self.whole)
        finally:
            if not self.pinned:
                self.ledger.release(self.whole.nbytes)
        return self.pinned

    def give_back(self) -> None:
        if self.pinned:
            self.link.drain()
            self.link.unpin(self.whole)
            self.pinned = False
            self.ledger.release(self.whole.nbytes)


class HostSlab:
    """Whole pages from the system, so that pinning them takes nothing else along (``cudaHostRegister`` locks pages).

    A tensor made by :meth:`view` is a storage of its own and keeps the memory alive by itself: weights may go on
    resting here after the slab object is gone, by then not pinned any more.
    """

    def __init__(self, size_bytes: int, link: Link, ledger: SharedLedger) -> None:
        """
        Raises:
            MemoryError: the system has not as much.
        """
        pages = -(-size_bytes // mmap.PAGESIZE)
        try:
            self._buffer = _anonymous(pages * mmap.PAGESIZE)
        except OSError as error:
            raise MemoryError(f"no {size_bytes} bytes of system memory for weights") from error
        self._pin = _Pin(link, ledger, torch.frombuffer(self._buffer, dtype=torch.uint8))
        self.bytes = self._pin.whole[:size_bytes]
        self._finalizer = weakref.finalize(self, self._pin.give_back)

    @property
    def pinned(self) -> bool:
        return self._pin.pinned

    def pin(self) -> bool:
        """Pin it, the ledger and the system permitting; whether it is pinned now."""
        return self._pin.take()

    def unpin(self) -> None:
        """Make it ordinary memory again, its contents unchanged, once no copy uses it; the ledger is told."""
        self._pin.give_back()

    def view(self, offset: int, like: torch.Tensor) -> torch.Tensor:
        """The dense tensor of the same type, shape and strides that begins at this byte."""
        flat = torch.frombuffer(self._buffer, dtype=like.dtype, count=like.numel(), offset=offset)
        return flat.as_strided(like.shape, like.stride())


def _anonymous(size_bytes: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_ANONYMOUS"):  # shared pages, the default, would count as a file's
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size_bytes)
