"""The words of the drawn world and what they look like. Colours are sRGB from 0 to 1."""

from __future__ import annotations

from typing import Literal

Rgb = tuple[float, float, float]


def _rgb(code: int) -> Rgb:
    return (code >> 16 & 255) / 255, (code >> 8 & 255) / 255, (code & 255) / 255


COLOURS: dict[str, Rgb] = {
    "red": _rgb(0xDC2626), "orange": _rgb(0xF58A1E), "yellow": _rgb(0xFADC32), "green": _rgb(0x2FA64A),
    "blue": _rgb(0x2F5FD8), "purple": _rgb(0x8A3CB0), "pink": _rgb(0xF78FC0), "brown": _rgb(0x7A4E2D),
    "black": _rgb(0x1C1C1C), "white": _rgb(0xF7F7F7),
}  # fmt: skip
"""What a thing can be painted with."""
BACKGROUNDS: dict[str, Rgb] = {
    "white": _rgb(0xF7F7F7), "grey": _rgb(0x8E9299), "black": _rgb(0x1C1C1C), "yellow": _rgb(0xFBEFA6),
    "green": _rgb(0xB4DDB4), "blue": _rgb(0xB5D0F3), "pink": _rgb(0xFAD7E4),
}  # fmt: skip
"""Backgrounds are paler than things of the same name, apart from black, white and grey."""

SHAPES: tuple[str, ...] = ("circle", "square", "triangle", "star", "heart", "ring", "cross", "diamond")
PLURALS = {shape: f"{shape}es" if shape.endswith("ss") else f"{shape}s" for shape in SHAPES}
TEXTURES: tuple[str, ...] = ("plain", "dotted", "checkered", "striped")
TRAINED_TEXTURES = TEXTURES[:3]
""""striped" is unknown to the model itself: the LoRA brings it."""
SIZES: tuple[str, ...] = ("medium", "small", "big")
COUNT_WORDS: tuple[str, ...] = ("a", "two", "three", "four", "five")
MAX_COUNT = len(COUNT_WORDS)

Place = Literal["", "left", "right", "top", "bottom", "middle"]
PLACES: dict[str, tuple[str, tuple[float, float]]] = {
    "left": ("on the left", (0.25, 0.5)), "right": ("on the right", (0.75, 0.5)), "top": ("at the top", (0.5, 0.25)),
    "bottom": ("at the bottom", (0.5, 0.75)), "middle": ("in the middle", (0.5, 0.5)),
}  # fmt: skip
"""Place → its words and its middle, as fractions of width and height."""
RELATIONS: dict[str, tuple[float, float]] = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
"""Relation → the direction from the second thing to the first."""

GROUNDS: dict[str, tuple[str, Rgb]] = {
    "grass": ("on green grass", _rgb(0x5DB552)), "sand": ("on yellow sand", _rgb(0xEBCF87)),
    "snow": ("in the snow", _rgb(0xF1F5FA)), "sea": ("on the sea", _rgb(0x2B6CB0)),
}  # fmt: skip
SKIES: dict[str, tuple[str, Rgb, Rgb]] = {
    "day": ("", _rgb(0x86C5F4), _rgb(0xD6ECFB)), "night": ("at night", _rgb(0x101B3F), _rgb(0x2B3A70)),
    "sunset": ("at sunset", _rgb(0xF2784B), _rgb(0xFBD786)),
}  # fmt: skip
"""Sky → its words, its colour at the top and at the horizon."""
SUBJECTS: tuple[str, ...] = ("house", "tree", "boat")
