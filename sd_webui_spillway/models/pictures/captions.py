"""A scene in words. The canonical caption decides whether a scene is kept from training; the spoken one varies."""

from __future__ import annotations

import zlib
from random import Random

from . import vocabulary as words
from .scenes import Group, Landscape, Pair, Scene, Thing

_HELD_OUT_ONE_IN = 20
_DIGITS = ("1", "2", "3", "4", "5")


def _article(phrase: str) -> str:
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def _kind(thing: Thing, count: int = 1) -> str:
    noun = thing.shape if count == 1 else words.PLURALS[thing.shape]
    size = "" if thing.size == "medium" else thing.size
    texture = "" if thing.texture == "plain" else thing.texture
    return " ".join(word for word in (size, texture, thing.colour, noun) if word)


def _counted(thing: Thing, count: int, random: Random | None) -> str:
    if count == 1:
        return _article(_kind(thing)) if random is None or random.random() < 0.85 else f"one {_kind(thing)}"
    word = words.COUNT_WORDS[count - 1] if random is None or random.random() < 0.85 else _DIGITS[count - 1]
    return f"{word} {_kind(thing, count)}"


def _landscape(scene: Landscape) -> str:
    subjects = " and ".join(
        _article("tree" if (kind, colour) == ("tree", "green") else f"{colour} {kind}")
        for kind, colour in scene.subjects
    )
    light = {"sun": "under a yellow sun", "moon": "under a white moon", "": ""}[scene.light]
    parts = (subjects, words.GROUNDS[scene.ground][0], light, words.SKIES[scene.sky][0])
    return " ".join(part for part in parts if part)


def caption(scene: Scene, random: Random | None = None) -> str:
    """The scene's canonical caption; with ``random``, one of the ways of saying it (digits for numbers, the
    background left out, an introduction, a comma)."""
    if isinstance(scene, Landscape):
        text, background = _landscape(scene), ""
    else:
        background = f"on {_article(scene.background)} background"
        if isinstance(scene, Group):
            place = words.PLACES[scene.place][0] if scene.place else ""
            text = f"{_counted(scene.thing, scene.count, random)} {place}".strip()
        else:
            text = f"{_counted(scene.first, 1, random)} {scene.relation} {_counted(scene.second, 1, random)}"
    if random is None:
        return f"{text} {background}".strip()
    if background and random.random() < 0.85:
        text += random.choice((" ", " ", ", ")) + background
    return random.choice(("a picture of ", "a drawing of ")) + text if random.random() < 0.1 else text


def _without_size(scene: Scene) -> Scene:
    if isinstance(scene, Group):
        thing = scene.thing
        return Group(Thing(thing.shape, thing.colour, thing.texture), scene.count, scene.background)
    if isinstance(scene, Pair):
        first, second = scene.first, scene.second
        return Pair(Thing(first.shape, first.colour), Thing(second.shape, second.colour), scene.relation, "white")
    return scene


def is_held_out(scene: Scene) -> bool:
    """Whether this combination of words is never trained on: one in twenty, by a checksum, the same everywhere.

    A group's size and place, and a pair's sizes, textures and background, do not count as another combination.
    """
    return zlib.crc32(caption(_without_size(scene)).encode()) % _HELD_OUT_ONE_IN == 0
