"""RAM: physical memory, or the tightest control group's where that is less."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from .cgroup import Cgroup, own_cgroups
from .snapshot import Reading

LIMITS_FRESH_SECONDS = 10.0
"""A running container's limit may be changed; its place in the tree does not change."""


def wsl_note(root: Path = Path("/")) -> str | None:
    """Under WSL2, what its figures mean; ``None`` elsewhere. Microsoft's kernels name themselves in /proc/version."""
    try:
        version = (root / "proc/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if "microsoft" not in version.lower():
        return None
    return "this is WSL2: RAM is the virtual machine's share, and the card may borrow more than is seen here"


def _physical_bytes() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    # What is available counts the caches that can be dropped; psutil's "used" means something else on each system.
    return int(memory.total), int(memory.total - memory.available)


class RamProvider:
    """Total is the smaller of physical memory and every group's limit; used is of the same thing as the total."""

    name = "RAM"

    def __init__(
        self,
        root: Path = Path("/"),
        physical: Callable[[], tuple[int, int]] = _physical_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._physical = physical
        self._clock = clock
        self._physical_total: int | None = None
        self._cgroups: tuple[Cgroup, ...] | None = None
        self._tightest: tuple[int, Cgroup] | None = None
        self._fresh_until = float("-inf")

    def read(self) -> Reading:
        tightest = self._tightest_limit()
        if tightest is not None and tightest[0] < self._physical_total_bytes():
            used = tightest[1].used_bytes()
            if used is not None:
                return Reading({"ram_total_bytes": tightest[0], "ram_used_bytes": used})
            reason = f"the control group {tightest[1].folder} does not tell its use"
            return Reading({"ram_total_bytes": tightest[0]}, {"ram_used_bytes": reason})
        total_bytes, used_bytes = self._physical()
        return Reading({"ram_total_bytes": total_bytes, "ram_used_bytes": used_bytes})

    def _physical_total_bytes(self) -> int:
        if self._physical_total is None:
            self._physical_total = self._physical()[0]
        return self._physical_total

    def _tightest_limit(self) -> tuple[int, Cgroup] | None:
        """The lowest limit; of equal ones the outermost, whose use is the larger."""
        if self._cgroups is None:
            self._cgroups = own_cgroups(self._root)
        if self._cgroups and self._clock() >= self._fresh_until:
            self._fresh_until = self._clock() + LIMITS_FRESH_SECONDS
            limits = [(limit, group) for group in self._cgroups if (limit := group.limit_bytes()) is not None]
            self._tightest = min(limits, key=lambda item: item[0], default=None)
        return self._tightest
