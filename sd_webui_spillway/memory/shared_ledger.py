"""The shared ledger: every byte this software pins is reserved here first, so that the cap holds exactly."""

from __future__ import annotations

import threading

from .cap import DEFAULT_CAP_BYTES


class SharedLedger:
    """Counts pinned bytes against the cap. Safe from any thread."""

    def __init__(self, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self._lock = threading.RLock()  # a slab that is collected meanwhile is given back by this very thread
        self._cap_bytes = cap_bytes
        self._reserved_bytes = 0

    @property
    def cap_bytes(self) -> int:
        return self._cap_bytes

    @property
    def pinned_bytes(self) -> int:
        """Reserved now: never less than what is pinned."""
        return self._reserved_bytes

    @property
    def excess_bytes(self) -> int:
        """Pinned above the cap, because the cap was lowered since; 0 otherwise. Whoever pinned gives it back."""
        return max(0, self._reserved_bytes - self._cap_bytes)

    def set_cap(self, cap_bytes: int) -> None:
        """From now on nothing is granted above this. What is pinned already shows as :attr:`excess_bytes`."""
        with self._lock:
            self._cap_bytes = cap_bytes

    def reserve(self, size_bytes: int) -> bool:
        """Take these bytes out of what the cap allows; ``False``, and nothing taken, where they would exceed it.

        Raises:
            ValueError: a negative size.
        """
        if size_bytes < 0:
            raise ValueError(f"a reservation of {size_bytes} bytes")
        with self._lock:
            if self._reserved_bytes + size_bytes > self._cap_bytes:
                return False
            self._reserved_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Give reserved bytes back.

        Raises:
            ValueError: more than is reserved, so something was given back twice.
        """
        with self._lock:
            if not 0 <= size_bytes <= self._reserved_bytes:
                raise ValueError(f"{size_bytes} bytes released of {self._reserved_bytes} reserved")
            self._reserved_bytes -= size_bytes
