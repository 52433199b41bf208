"""Which tensor storages are alive, and how many bytes they hold: the ledger of a card that only exists as a count."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef


class LiveStorages:
    """A set of storages, held weakly: a storage leaves it when its last tensor dies.

    Python's own weak references to a storage object die early (up to torch 2.1 the object is a throw-away wrapper), so
    this uses torch's ``StorageWeakRef``, which refers to the C++ storage and keeps its identity from being reused.
    """

    def __init__(self) -> None:
        self._references: dict[int, tuple[StorageWeakRef, int]] = {}
        self._bytes = 0

    @property
    def counted_bytes(self) -> int:
        """Bytes alive when they were last looked at, and all added since: never less than what is alive now."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._references)

    def add(self, tensor: torch.Tensor) -> int:
        """Add the tensor's storage; the bytes this added, 0 where it was there already."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._references:
            return 0
        size = storage.nbytes()
        self._references[key] = (StorageWeakRef(storage), size)
        self._bytes += size
        return size

    def discard(self, tensor: torch.Tensor) -> None:
        """Forget the tensor's storage, alive or not."""
        entry = self._references.pop(tensor.untyped_storage()._cdata, None)
        if entry is not None:
            self._bytes -= entry[1]

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._references

    def sweep(self) -> int:
        """Drop the dead; the bytes still alive."""
        dead = [key for key, (reference, _) in self._references.items() if reference.expired()]
        for key in dead:
            self._bytes -= self._references.pop(key)[1]
        return self._bytes
