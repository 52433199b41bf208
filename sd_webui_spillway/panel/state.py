"""The one word a glance at the meter should give."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum

from ..host_port import JobProgress
from ..memory.snapshot import MemorySnapshot
from ..units import MIB

SPILL_NOISE_BYTES = 64 * MIB
"""Windows keeps a little of every process in shared memory; less than this is not a spill."""
RECOVERING_SECONDS = 6.0
"""How long after a rung the word stays: long enough to be read."""


class MemoryState(str, Enum):
    """How memory stands, as a word."""

    COMFORTABLE = "comfortable"
    NEAR_THE_EDGE = "near the edge"
    SPILLING = "spilling"
    RECOVERING = "recovering"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


def edge_share(snapshot: MemorySnapshot) -> float | None:
    """How full the card is, 0 to 1, by the tighter of the whole card and this process's own limit."""
    shares = []
    if snapshot.dedicated_used_bytes is not None and snapshot.dedicated_total_bytes:
        shares.append(snapshot.dedicated_used_bytes / snapshot.dedicated_total_bytes)
    if snapshot.dedicated_process_bytes is not None and snapshot.dedicated_limit_bytes:
        shares.append(snapshot.dedicated_process_bytes / snapshot.dedicated_limit_bytes)
    return max(shares, default=None)


def memory_state(snapshot: MemorySnapshot, edge: float, *, recovering: bool = False) -> MemoryState:
    """The word for a snapshot; what is being done about memory goes before how much there is of it.

    ``edge`` is the share of the card from which on the next allocation may be the one that fails.
    """
    if recovering:
        return MemoryState.RECOVERING
    if (snapshot.shared_spilled_bytes or 0) > SPILL_NOISE_BYTES:
        return MemoryState.SPILLING
    share = edge_share(snapshot)
    if share is None:
        return MemoryState.UNKNOWN
    return MemoryState.NEAR_THE_EDGE if share >= edge else MemoryState.COMFORTABLE


class RecoveryWatch:
    """Tells whether the running job took a rung a moment ago. Any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: tuple[str, int] = ("", 0)
        self._changed_at: float | None = None

    def recovering(self, progress: JobProgress | None) -> bool:
        """True while a job runs whose ladder moved within the last :data:`RECOVERING_SECONDS`."""
        if progress is None:
            return False
        with self._lock:
            now = (progress.job_id, len(progress.rungs))
            before = self._seen[1] if self._seen[0] == progress.job_id else 0
            if now[1] > before:
                self._changed_at = self._clock()
            elif self._seen[0] != progress.job_id:
                self._changed_at = None
            self._seen = now
            return self._changed_at is not None and self._clock() - self._changed_at < RECOVERING_SECONDS
