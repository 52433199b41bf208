"""The ``stream`` profile: weights flow to the card through a small ring of slots while it computes."""

from .streaming import Streaming, StreamOptions, smallest_ring_bytes

__all__ = ["Streaming", "StreamOptions", "smallest_ring_bytes"]
