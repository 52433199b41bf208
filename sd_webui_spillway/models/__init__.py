"""Loading models without a hub, and making some with random weights. diffusers is imported when first needed."""

from __future__ import annotations

from .checkpoint_reader import read_checkpoint
from .converter import Converted, convert_folder
from .loader import LoadedModel, load_model
from .lora_loading import LoraChoice
from .maker import make_checkpoint

__all__ = [
    "Converted", "LoadedModel", "LoraChoice", "convert_folder", "load_model", "make_checkpoint", "read_checkpoint",
]  # fmt: skip
