"""What memory there is: the card's, what the card borrows of the system's, and RAM."""

from .cap import shared_cap_bytes
from .machine import machine_providers
from .monitor import Monitor, PeakWatch
from .snapshot import MemoryProvider, MemoryReader, MemorySnapshot

__all__ = [
    "MemoryProvider", "MemoryReader", "MemorySnapshot", "Monitor", "PeakWatch", "machine_providers", "shared_cap_bytes",
]
