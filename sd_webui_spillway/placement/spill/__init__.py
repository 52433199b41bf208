"""The ``spill`` profile: what the budget has no room for is read by the card in place, in pinned system memory."""

from .pieces import SpillOptions
from .spilling import Spilling, least_on_card

__all__ = ["SpillOptions", "Spilling", "least_on_card"]
