"""A scene as layers of paint: which shape, where, how large, turned how far, in which colour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from . import vocabulary as words
from .scenes import Group, Landscape, Pair, Scene, Thing
from .vocabulary import Rgb

_MARGIN = 0.03
"""Least distance between two things and from a thing to the edge, as a fraction of the picture's shorter side."""
_RADII = {"small": (0.105, 0.13), "medium": (0.15, 0.2), "big": (0.26, 0.34)}
"""Least and largest radius of a thing that stands alone."""
_CROWDED = (1.0, 0.95, 0.88, 0.8, 0.74)
"""How much smaller each of so many things is."""
_UPRIGHT = ("triangle", "heart", "star", "cross", "diamond", "square")
MAX_LAYERS = 10


@dataclass(frozen=True)
class Layer:
    """One shape of one colour. Lengths are fractions of the picture's width (x) and height (y)."""

    shape: str
    x: float
    y: float
    half_width: float
    half_height: float
    colour: Rgb
    texture: str = "plain"
    angle: float = 0.0
    """Radians, clockwise."""


@dataclass(frozen=True)
class Drawing:
    """What the renderer paints: the background's colour at the top and at the bottom, then layers in order."""

    top: Rgb
    bottom: Rgb
    layers: tuple[Layer, ...]


def _paint(thing: Thing, x: float, y: float, radius: float, random: Random) -> Layer:
    tilt = random.uniform(-0.2, 0.2) if thing.shape in _UPRIGHT else 0.0
    colour = _varied(words.COLOURS[thing.colour], random)
    return Layer(thing.shape, x, y, radius, radius, colour, thing.texture, tilt)


def _varied(colour: Rgb, random: Random) -> Rgb:
    red, green, blue = (min(1.0, max(0.0, part + random.uniform(-0.02, 0.02))) for part in colour)
    return red, green, blue


def _radius(size: str, count: int, random: Random, least: float) -> float:
    low, high = _RADII[size]
    if count > 1 and size == "big":
        low, high = 0.2, 0.24
    return max(least, random.uniform(low, high) * _CROWDED[count - 1])


def _apart(count: int, radius: float, random: Random) -> list[tuple[float, float]]:
    """Middles of ``count`` things that do not touch; a radius too large for chance falls back to a ring."""
    edge, apart = radius + _MARGIN, 2 * radius + _MARGIN
    for _ in range(200):
        middles = [(random.uniform(edge, 1 - edge), random.uniform(edge, 1 - edge)) for _ in range(count)]
        if all(math.dist(a, b) >= apart for index, a in enumerate(middles) for b in middles[:index]):
            return middles
    reach, start = 0.5 - edge, random.uniform(0, math.tau)
    turns = [start + math.tau * index / count for index in range(count)]
    return [(0.5 + reach * math.cos(turn), 0.5 + reach * math.sin(turn)) for turn in turns]


def _group(scene: Group, random: Random, least: float) -> tuple[Layer, ...]:
    radius = _radius(scene.thing.size, scene.count, random, least)
    if scene.count == 1:
        x, y = words.PLACES[scene.place or "middle"][1]
        spread = 0.04 if scene.place else 0.12
        radius = min(radius, 0.2) if scene.place not in ("", "middle") else radius
        middles = [(x + random.uniform(-spread, spread), y + random.uniform(-spread, spread))]
    else:
        middles = _apart(scene.count, radius, random)
    return tuple(_paint(scene.thing, x, y, radius, random) for x, y in middles)


def _pair(scene: Pair, random: Random, least: float) -> tuple[Layer, ...]:
    dx, dy = words.RELATIONS[scene.relation]
    layers = []
    for thing, side in ((scene.second, -1), (scene.first, 1)):
        radius = min(_radius(thing.size, 1, random, least), 0.21)
        x, y = (0.5 + side * 0.24 * part + random.uniform(-0.03, 0.03) for part in (dx, dy))
        layers.append(_paint(thing, x, y, radius, random))
    return tuple(layers)


def _landscape(scene: Landscape, random: Random) -> Drawing:
    horizon = random.uniform(0.58, 0.7)
    _words, top, bottom = words.SKIES[scene.sky]
    layers: list[Layer] = []
    if scene.light:
        x, y, radius = random.uniform(0.15, 0.85), random.uniform(0.14, 0.26), random.uniform(0.07, 0.1)
        shape, colour = ("circle", "yellow") if scene.light == "sun" else ("crescent", "white")
        layers.append(Layer(shape, x, y, radius, radius, words.COLOURS[colour]))
    ground = _varied(words.GROUNDS[scene.ground][1], random)
    if scene.sky == "night":
        ground = (ground[0] * 0.6, ground[1] * 0.6, ground[2] * 0.65)
    layers.append(Layer("square", 0.5, (1 + horizon) / 2, 1.0, (1 - horizon) / 2 / 0.78, ground))
    places = (random.uniform(0.35, 0.65),) if len(scene.subjects) == 1 else (0.28, 0.72)
    for (kind, colour), x in zip(scene.subjects, places, strict=True):
        base = horizon + random.uniform(0.04, 0.1)
        layers += _SUBJECTS[kind](x + random.uniform(-0.04, 0.04), base, colour, random)
    return Drawing(top, bottom, tuple(layers))


def _house(x: float, base: float, colour: str, random: Random) -> list[Layer]:
    width, height = random.uniform(0.14, 0.18), random.uniform(0.11, 0.14)
    roof = words.COLOURS["brown" if colour != "brown" else "red"]
    window = words.COLOURS["yellow" if colour != "yellow" else "white"]
    return [
        Layer("square", x, base - height, width / 0.78, height / 0.78, words.COLOURS[colour]),
        Layer("triangle", x, base - 2 * height - 0.055, width * 1.3, 0.13, roof),
        Layer("square", x - width * 0.45, base - height * 1.1, 0.04, 0.045, window),
        Layer("square", x + width * 0.4, base - height * 0.6, 0.045, height * 0.75, roof),
    ]


def _tree(x: float, base: float, colour: str, random: Random) -> list[Layer]:
    height, crown = random.uniform(0.1, 0.14), random.uniform(0.12, 0.15)
    leaves = (0.12, 0.48, 0.22) if colour == "green" else words.COLOURS[colour]
    return [
        Layer("square", x, base - height / 2, 0.035, height / 2 / 0.7, words.COLOURS["brown"]),
        Layer("circle", x, base - height - crown * 0.75, crown, crown * 1.1, leaves),
    ]


def _boat(x: float, base: float, colour: str, random: Random) -> list[Layer]:
    width = random.uniform(0.19, 0.24)
    return [
        Layer("square", x, base - 0.2, 0.015, 0.2, words.COLOURS["brown"]),
        Layer("triangle", x + 0.01, base - 0.24, width * 0.75, 0.17, (0.96, 0.94, 0.88)),
        Layer("hull", x, base, width, 0.1, words.COLOURS[colour]),
    ]


_SUBJECTS = {"house": _house, "tree": _tree, "boat": _boat}


def layers_of(scene: Scene, random: Random, side_pixels: int = 256) -> Drawing:
    """Everything the caption leaves open is drawn from ``random``: exact places, sizes, tilt, a shade of the colour.

    In a picture of few pixels no thing is made smaller than ten pixels in radius.
    """
    if isinstance(scene, Landscape):
        return _landscape(scene, random)
    least = 10 / side_pixels
    layers = _group(scene, random, least) if isinstance(scene, Group) else _pair(scene, random, least)
    background = words.BACKGROUNDS[scene.background]
    return Drawing(background, background, layers)
