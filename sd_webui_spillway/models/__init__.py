"""Loading models without a hub, and making some with random weights. diffusers is imported when first needed."""

from __future__ import annotations

from .checkpoint_reader import read_checkpoint
from .loader import LoadedModel, load_model
from .maker import make_checkpoint

__all__ = ["LoadedModel", "load_model", "make_checkpoint", "read_checkpoint"]
