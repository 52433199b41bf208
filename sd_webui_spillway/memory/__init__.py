"""What memory there is: the card's, what the card borrows of the system's, and RAM."""

from .cap import shared_cap_bytes
from .monitor import Monitor
from .snapshot import MemoryProvider, MemoryReader, MemorySnapshot

__all__ = ["MemoryProvider", "MemoryReader", "MemorySnapshot", "Monitor", "shared_cap_bytes"]
