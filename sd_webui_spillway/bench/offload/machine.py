"""What a child measures on: a CUDA card, or a rehearsal on the processor whose figures mean nothing."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

from ...placement.card import Card, CudaCard
from ...placement.simulated import SimulatedCard
from ...placement.simulated_link import BYTES_PER_SECOND, SimulatedLink
from ...units import GIB, MIB

_PROBE_BYTES = 256 * MIB
_PROBES = 5


class Machine(Protocol):
    """Clock, counters and card of one process. Sizes are bytes."""

    @property
    def device(self) -> torch.device: ...

    @property
    def simulated(self) -> bool: ...

    @property
    def label(self) -> str:
        """In words, for the results."""

    def card(self) -> Card:
        """The card for our own profiles, with a link."""

    def synchronize(self) -> None:
        """Wait until everything queued is done."""

    def link_bytes_per_second(self) -> float:
        """One copy after another from pinned memory to the card, measured now."""

    def reset_peak(self) -> None: ...

    def peak_bytes(self) -> int | None:
        """The most that torch has allocated since :meth:`reset_peak`; ``None`` is unknown."""

    def allocated_bytes(self) -> int | None:
        """What torch has allocated now; ``None`` is unknown."""

    def pinned_bytes(self) -> int | None:
        """What torch's own host allocator has pinned; ``None`` is unknown."""

    def release(self) -> None:
        """Give back what is cached."""


class CudaMachine:
    """A real card. Nothing is touched before the first use, so that an allocator can be put in first."""

    simulated = False

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        self._probe: torch.Tensor | None = None

    @property
    def label(self) -> str:
        return torch.cuda.get_device_name(self.device)

    def card(self) -> Card:
        return CudaCard(link=True)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def link_bytes_per_second(self) -> float:
        if self._probe is None:
            self._probe = torch.empty(_PROBE_BYTES, dtype=torch.uint8).pin_memory()
        target = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device=self.device)
        seconds: list[float] = []
        for _ in range(_PROBES):
            begun, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begun.record()
            target.copy_(self._probe, non_blocking=True)
            done.record()
            done.synchronize()
            seconds.append(begun.elapsed_time(done) / 1000)
        return _PROBE_BYTES / min(seconds)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self.device)

    def allocated_bytes(self) -> int | None:
        return torch.cuda.memory_allocated(self.device)

    def pinned_bytes(self) -> int | None:
        """Only newer versions of torch keep this count."""
        statistics: Any = getattr(torch.cuda, "host_memory_stats", None)
        found = statistics().get("allocated_bytes.current") if statistics is not None else None
        probe = self._probe.nbytes if self._probe is not None else 0
        return int(found) - probe if found is not None else None

    def release(self) -> None:
        torch.cuda.empty_cache()


class RehearsalMachine:
    """The processor. Our own profiles run on a simulated card; other tools simply run, with nothing to offload to."""

    device = torch.device("cpu")
    simulated = True
    label = "rehearsal on the processor: no measurement"

    def card(self) -> Card:
        return SimulatedCard(64 * GIB, SimulatedLink())

    def synchronize(self) -> None:
        """The processor computes at once."""

    def link_bytes_per_second(self) -> float:
        return BYTES_PER_SECOND

    def reset_peak(self) -> None:
        """No count is kept."""

    def peak_bytes(self) -> int | None:
        return None

    def allocated_bytes(self) -> int | None:
        return None

    def pinned_bytes(self) -> int | None:
        return None

    def release(self) -> None:
        """Nothing is cached."""


def timed(call: Any, machine: Machine) -> tuple[float, float, Any]:
    """Seconds of one call until the card has done it, processor seconds that this thread spent on giving it, result."""
    machine.synchronize()
    began, spent = time.perf_counter(), time.thread_time()
    result = call()
    spent = time.thread_time() - spent
    machine.synchronize()
    return time.perf_counter() - began, spent, result
