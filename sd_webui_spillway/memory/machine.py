"""The machine's own providers, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable

from .nvml import NvmlProvider
from .ram import RamProvider
from .shared import SharedProvider
from .snapshot import MemoryProvider
from .torch_stats import TorchProvider, torch_device_uuid


def machine_providers(
    device_index: int = 0,
    fraction: Callable[[], float] = lambda: 1.0,
    pinned_bytes: Callable[[], int] = lambda: 0,
) -> tuple[MemoryProvider, ...]:
    """NVML, torch, shared memory, RAM: the best source of each figure first.

    ``device_index`` is torch's; ``fraction`` the part (0 to 1) of the card this process may use; ``pinned_bytes`` what
    it has pinned.
    """
    return (
        NvmlProvider(lambda: torch_device_uuid(device_index), fraction),
        TorchProvider(device_index, fraction),
        SharedProvider(pinned_bytes),
        RamProvider(),
    )
