"""The ``spill`` profile: what the budget has no room for is read by the card in place, in pinned system memory."""

from .pieces import SpillOptions, cut_up, least_on_card
from .spilling import Spilling

__all__ = ["SpillOptions", "Spilling", "cut_up", "least_on_card"]
