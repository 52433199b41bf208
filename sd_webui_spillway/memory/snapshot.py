"""One reading of all memory that matters, from whichever providers know it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol

from ..errors import first_line

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemorySnapshot:
    """Memory at one moment, in bytes. ``None`` is unknown; ``unknown_because`` then says why, by field name.

    ``dedicated_*`` is memory on the card, ``shared_*`` system memory the card borrows: *pinned* by us plus *spilled*
    by the driver.
    """

    taken_at: float
    """Unix time in seconds."""
    device_name: str | None = None
    simulated: bool = False
    dedicated_total_bytes: int | None = None
    dedicated_limit_bytes: int | None = None
    """What this process may use of the card: the whole card unless it was limited."""
    dedicated_used_bytes: int | None = None
    """By every process together."""
    dedicated_process_bytes: int | None = None
    shared_pinned_bytes: int | None = None
    shared_spilled_bytes: int | None = None
    ram_total_bytes: int | None = None
    """The smaller of physical memory and every cgroup limit."""
    ram_used_bytes: int | None = None
    unknown_because: Mapping[str, str] = field(default_factory=dict)

    @property
    def dedicated_free_bytes(self) -> int | None:
        if self.dedicated_total_bytes is None or self.dedicated_used_bytes is None:
            return None
        return max(0, self.dedicated_total_bytes - self.dedicated_used_bytes)

    @property
    def shared_used_bytes(self) -> int | None:
        if self.shared_pinned_bytes is None or self.shared_spilled_bytes is None:
            return None
        return self.shared_pinned_bytes + self.shared_spilled_bytes


FIGURES = tuple(f.name for f in fields(MemorySnapshot) if f.name.endswith("_bytes"))
_READABLE = frozenset((*FIGURES, "device_name", "simulated"))
Value = int | str | bool


@dataclass(frozen=True)
class Reading:
    """What one provider knows: values by :class:`MemorySnapshot` field name, and reasons for what it does not."""

    values: Mapping[str, Value] = field(default_factory=dict)
    unknown_because: Mapping[str, str] = field(default_factory=dict)


class MemoryProvider(Protocol):
    """One source of figures. ``read`` may be called from any thread, must not raise, must not start CUDA, and should
    take well under 0.5 ms."""

    name: str

    def read(self) -> Reading: ...


class MemoryReader:
    """A chain of providers: for each figure the first provider that knows it wins.

    A provider that raises all the same is logged once for each kind of error; what only it knows is then unknown.
    """

    def __init__(self, providers: Iterable[MemoryProvider]) -> None:
        self._providers = tuple(providers)
        self._given_before: dict[str, frozenset[str]] = {}
        self._logged: set[tuple[str, type[Exception]]] = set()

    def read(self) -> MemorySnapshot:
        """One snapshot. Never raises."""
        values: dict[str, Value] = {}
        reasons: dict[str, str] = {}
        otherwise = "no provider on this machine reports it"
        for provider in self._providers:
            try:
                reading = provider.read()
                self._given_before[provider.name] = frozenset(reading.values)
            except Exception as error:  # noqa: BLE001 - a driver's failure of any kind must cost its figures only
                reading, otherwise = self._failed(provider.name, error)
            for name, value in reading.values.items():
                if name in _READABLE:
                    values.setdefault(name, value)
            for name, reason in reading.unknown_because.items():
                reasons.setdefault(name, reason)
        unknown = {name: reasons.get(name, otherwise) for name in FIGURES if name not in values}
        return MemorySnapshot(taken_at=time.time(), unknown_because=unknown, **values)  # type: ignore[arg-type]

    def _failed(self, name: str, error: Exception) -> tuple[Reading, str]:
        if (name, type(error)) not in self._logged:
            self._logged.add((name, type(error)))
            logger.warning("memory provider %s failed and will be asked again", name, exc_info=error)
        reason = f"{name} failed: {first_line(error)}"
        return Reading(unknown_because=dict.fromkeys(self._given_before.get(name, ()), reason)), reason
