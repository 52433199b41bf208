"""The link's twin without a GPU: an adversary that copies as late, or as early, as the marks allow.

The CPU computes at once, so a missing wait would never show by itself. Here a queued copy is held back until somebody
waits for it, its target full of NaN meanwhile, and who knows of what is followed for both queues as for two threads
(vector clocks). An operation on a slab whose copy was not waited for, or a copy over a slab whose last use was not,
raises :class:`RaceError` however the copies happened to land.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.dlpack import from_dlpack

from .link import Mark

POISON = 0xFF
"""Bytes of nothing but this are a NaN in every floating type."""
OPERATION_SECONDS = 1e-5
"""What one operation on a slab takes, as :meth:`SimulatedLink.seconds_between` tells it."""
BYTES_PER_SECOND = 1e9


class RaceError(AssertionError):
    """Two queues use the same bytes and neither waits for the other."""


@dataclass
class _Mark:
    computed: int = 0
    """Operations computed when it was set."""
    copied: int = 0
    """Copies queued when it was set."""
    seconds: float = 0.0


@dataclass(frozen=True)
class _Copy:
    number: int
    source: torch.Tensor
    target: torch.Tensor


@dataclass
class _Slab:
    """What is known of one slab on the card."""

    reference: StorageWeakRef
    used: int = 0
    """The last operation that used it."""
    copied: int = 0
    """The last copy into it."""


@dataclass
class _Mapping:
    """A slab as the card sees it: a storage of its own over the same bytes."""

    reference: StorageWeakRef
    address: int
    pinned: bool = True


@dataclass
class SimulatedLink:
    """``eager`` is the chance, at every occasion, that the oldest queued copy lands without being waited for."""

    eager: float = 0.0
    random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - repeatable
    pin_limit_bytes: int | None = None
    """What the system lets be pinned; ``None`` is no limit."""

    def __post_init__(self) -> None:
        self.pinned: dict[int, int] = {}
        """Bytes by address."""
        self.uploads = 0
        self._queue: deque[_Copy] = deque()
        self._mapped: dict[int, _Mapping] = {}
        self._slabs: dict[int, _Slab] = {}
        self._computed = 0
        self._compute_knows = 0
        """Copies that the computation has waited for."""
        self._copy_knows = 0
        """Operations that the copies have waited for."""
        self._copy_seconds = 0.0

    @property
    def pinned_bytes(self) -> int:
        return sum(self.pinned.values())

    def pin(self, slab: torch.Tensor) -> bool:
        if slab.data_ptr() in self.pinned:
            raise RaceError("pinned twice")
        if self.pin_limit_bytes is not None and self.pinned_bytes + slab.nbytes > self.pin_limit_bytes:
            return False
        self.pinned[slab.data_ptr()] = slab.nbytes
        return True

    def unpin(self, slab: torch.Tensor) -> None:
        if any(copy.source.data_ptr() == slab.data_ptr() for copy in self._queue):
            raise RaceError("unpinned with a copy of it queued")
        del self.pinned[slab.data_ptr()]
        for mapping in self._mapped.values():
            mapping.pinned &= mapping.address != slab.data_ptr()

    def mapped(self, slab: torch.Tensor) -> torch.Tensor:
        if slab.data_ptr() not in self.pinned:
            raise RaceError("read in place without being pinned")
        for key in [key for key, mapping in self._mapped.items() if mapping.reference.expired()]:
            del self._mapped[key]
        with torch._C._DisableTorchDispatch(), torch.inference_mode(False):
            seen = from_dlpack(slab)
        storage = seen.untyped_storage()
        self._mapped[storage._cdata] = _Mapping(StorageWeakRef(storage), slab.data_ptr())
        return seen

    def maps(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._mapped

    def mark(self) -> Mark:
        return _Mark()

    def set_in_compute(self, mark: _Mark) -> None:
        self._land_some()
        mark.computed, mark.copied = self._computed, self._compute_knows
        mark.seconds = self._computed * OPERATION_SECONDS

    def compute_waits(self, mark: _Mark) -> None:
        self._compute_knows = max(self._compute_knows, mark.copied)
        while self._queue and self._queue[0].number <= mark.copied:
            self._land()
        self._land_some()

    def upload(self, source: torch.Tensor, target: torch.Tensor, after: _Mark, begun: _Mark, done: _Mark) -> None:
        self._copy_knows = max(self._copy_knows, after.computed)
        slab = self._slabs[target.untyped_storage()._cdata]
        if slab.used > self._copy_knows:
            raise RaceError("a copy over a slab that may still be in use")
        with _unseen():
            target.fill_(POISON)
        self.uploads += 1
        slab.copied = self.uploads
        begun.seconds = self._copy_seconds
        self._copy_seconds += source.nbytes / BYTES_PER_SECOND
        for mark in (begun, done):
            mark.computed, mark.copied = self._copy_knows, self.uploads
        done.seconds = self._copy_seconds
        self._queue.append(_Copy(self.uploads, source, target))
        if source.data_ptr() not in self.pinned:
            while self._queue:
                self._land()
        self._land_some()

    def drain(self) -> None:
        while self._queue:
            self._land()
        self._compute_knows, self._copy_knows = self.uploads, self._computed

    def seconds_between(self, begun: _Mark, done: _Mark) -> float:
        return done.seconds - begun.seconds

    def watch(self, slab: torch.Tensor) -> None:
        """A slab was taken on the card: its memory may have been in use until now."""
        for key, known in list(self._slabs.items()):
            if known.reference.expired():
                del self._slabs[key]
                if known.copied > self._compute_knows:
                    raise RaceError("a slab was given back while a copy into it may still be under way")
        storage = slab.untyped_storage()
        self._computed += 1
        self._slabs[storage._cdata] = _Slab(StorageWeakRef(storage), used=self._computed)

    def computed(self, tensors: Iterable[torch.Tensor]) -> None:
        """An operation on these has been computed."""
        self._land_some()
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            mapping = self._mapped.get(key)
            if mapping is not None and not mapping.pinned:
                raise RaceError("an operation on memory that is read in place and no longer pinned")
            slab = self._slabs.get(key)
            if slab is None:
                continue
            if slab.copied > self._compute_knows:
                raise RaceError("an operation on a slab whose copy was not waited for")
            self._computed += 1
            slab.used = self._computed

    def _land_some(self) -> None:
        while self._queue and self.random.random() < self.eager:
            self._land()

    def _land(self) -> None:
        copy = self._queue.popleft()
        with _unseen():
            copy.target.copy_(copy.source)


class _unseen:  # noqa: N801 - a context manager that reads as one
    """No dispatch mode sees what is done inside, and no version is counted."""

    def __enter__(self) -> None:
        self._guards = (torch._C._DisableTorchDispatch(), torch.inference_mode(False), torch.no_grad())
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *error: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(*error)
