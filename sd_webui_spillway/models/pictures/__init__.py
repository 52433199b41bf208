"""The world that the embedded model knows: pictures the project draws itself, and the captions that go with them."""

from __future__ import annotations

from .captions import caption, is_held_out
from .layers import Drawing, layers_of
from .renderer import Packed, pack, paint, render
from .scenes import Group, Landscape, Pair, Scene, Thing, random_scene

__all__ = [
    "Drawing", "Group", "Landscape", "Pair", "Scene", "Thing",
    "Packed", "caption", "is_held_out", "layers_of", "pack", "paint", "random_scene", "render",
]  # fmt: skip
