"""What a picture shows, without yet saying where exactly: the part that a caption speaks of."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from . import vocabulary as words


@dataclass(frozen=True)
class Thing:
    """One kind of thing: its shape, colour, texture and size, by their words."""

    shape: str
    colour: str
    texture: str = "plain"
    size: str = "medium"


@dataclass(frozen=True)
class Group:
    """One to five alike things on a background; a single one may have a place."""

    thing: Thing
    count: int
    background: str
    place: str = ""


@dataclass(frozen=True)
class Pair:
    """Two things, the first ``relation`` the second."""

    first: Thing
    second: Thing
    relation: str
    background: str


@dataclass(frozen=True)
class Landscape:
    """A house, a tree or a boat, or two of them, on a ground under a sky."""

    subjects: tuple[tuple[str, str], ...]
    """Subject and colour, left to right; a tree's colour is that of its leaves."""
    ground: str
    sky: str
    light: str
    """``"sun"``, ``"moon"`` or ``""``."""


Scene = Group | Pair | Landscape


def _colour_on(background: str, random: Random, other_than: str = "") -> str:
    """A colour that can be told from the background."""
    return random.choice([name for name in words.COLOURS if name not in (background, other_than)])


def _thing(background: str, random: Random, textures: tuple[str, ...], other_than: Thing | None = None) -> Thing:
    shapes = [shape for shape in words.SHAPES if other_than is None or shape != other_than.shape]
    colour = _colour_on(background, random, other_than.colour if other_than else "")
    texture = random.choice(textures) if random.random() < 0.3 else textures[0]
    size = random.choice(words.SIZES[1:]) if random.random() < 0.3 else words.SIZES[0]
    return Thing(random.choice(shapes), colour, texture, size)


def random_scene(random: Random, max_count: int = words.MAX_COUNT, *, striped: bool = False) -> Scene:
    """A scene drawn from ``random`` alone, with at most ``max_count`` things. ``striped`` makes every texture so."""
    textures = ("striped",) if striped else words.TRAINED_TEXTURES
    background = random.choice(tuple(words.BACKGROUNDS))
    kind = random.random()
    if kind < 0.62 or striped:
        count = random.choices(range(1, max_count + 1), weights=(4, 3, 3, 3, 3)[:max_count])[0]
        thing = _thing(background, random, textures)
        place = random.choice(tuple(words.PLACES)) if count == 1 and random.random() < 0.4 else ""
        return Group(thing, count, background, place)
    if kind < 0.82:
        first = _thing(background, random, textures)
        second = _thing(background, random, textures, other_than=first)
        return Pair(first, second, random.choice(tuple(words.RELATIONS)), background)
    return _landscape(random)


def _landscape(random: Random) -> Landscape:
    ground, sky = random.choice(tuple(words.GROUNDS)), random.choice(tuple(words.SKIES))
    light = random.choice(("", {"day": "sun", "sunset": "sun", "night": "moon"}[sky]))
    if ground == "sea":
        return Landscape((("boat", _boat_colour(random)),), ground, sky, light)
    kinds = random.choice((("house",), ("tree",), ("house", "tree"), ("tree", "house")))
    subjects = tuple(
        (kind, random.choice(("green", "orange")) if kind == "tree" else random.choice(tuple(words.COLOURS)[:8]))
        for kind in kinds
    )
    return Landscape(subjects, ground, sky, light)


def _boat_colour(random: Random) -> str:
    return random.choice([name for name in words.COLOURS if name not in ("blue", "black")])
