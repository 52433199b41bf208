"""Shared memory: what we pinned, and what the driver spilled, as far as it is known without Windows counters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from .ram import wsl_note
from .snapshot import Reading


class SharedProvider:
    """``pinned_bytes`` tells what this process has pinned. NVIDIA's driver for Linux never spills: an allocation that
    does not fit fails there. On Windows and WSL2 it does spill, and AMD's driver for Linux may as well."""

    name = "shared memory"

    def __init__(
        self,
        pinned_bytes: Callable[[], int] = lambda: 0,
        root: Path = Path("/"),
        platform: str = sys.platform,
    ) -> None:
        self._pinned_bytes = pinned_bytes
        self._spill_unknown_because = _spill_unknown_because(root, platform)

    def read(self) -> Reading:
        pinned = {"shared_pinned_bytes": self._pinned_bytes()}
        if self._spill_unknown_because is None:
            return Reading({**pinned, "shared_spilled_bytes": 0})
        return Reading(pinned, {"shared_spilled_bytes": self._spill_unknown_because})


def _spill_unknown_because(root: Path, platform: str) -> str | None:
    if platform == "win32" or (platform == "linux" and wsl_note(root)):
        return "the Windows counters are not read yet"
    if platform != "linux":
        return "this system has no counter of it"
    if (root / "sys/module/amdgpu").exists() and not (root / "proc/driver/nvidia").exists():
        return "the counters of AMD's driver are not read yet"
    return None
