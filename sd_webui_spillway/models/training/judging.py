"""Whether what is seen in a picture is what its caption says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..pictures import Group, Pair, Thing
from ..pictures import vocabulary as words
from .classifier import SeenThing

QUALITIES = ("colour", "shape", "count", "binding", "texture", "relation", "place", "everything")
"""The names of a verdict's parts."""


@dataclass(frozen=True)
class Verdict:
    """What of a caption the picture keeps. ``None``: the caption says nothing of it."""

    colour: bool
    """The set of colours seen equals the caption's."""
    shape: bool
    """The set of shapes seen equals the caption's."""
    count: bool
    """The number of things seen equals the caption's: one to five, two for a pair."""
    binding: bool
    """The set of (colour, shape) combinations seen equals the caption's: no colour on the wrong shape."""
    texture: bool
    """The set of textures seen equals the caption's; a caption without a texture means plain."""
    relation: bool | None
    """For a pair: each of its two combinations is seen exactly once and nothing else, and the direction from the
    second to the first, horizontal or vertical by the longer part, is the caption's."""
    place: bool | None
    """Where the caption names a place: exactly one thing is seen, and the named place's middle is the nearest of the
    five to it."""

    @property
    def everything(self) -> bool:
        """All that the caption says is kept."""
        said = (self.colour, self.shape, self.count, self.binding, self.texture, self.relation, self.place)
        return all(part is not False for part in said)


def things_of(scene: Group | Pair) -> tuple[Thing, ...]:
    """The kinds of things in a scene."""
    return (scene.thing,) if isinstance(scene, Group) else (scene.first, scene.second)


def count_of(scene: Group | Pair) -> int:
    """How many things a scene shows."""
    return scene.count if isinstance(scene, Group) else 2


def judge(scene: Group | Pair, seen: Sequence[SeenThing]) -> Verdict:
    """Compares what was seen with what the scene's caption says. Sizes and the background are not judged."""
    things = things_of(scene)
    return Verdict(
        colour={thing.colour for thing in seen} == {thing.colour for thing in things},
        shape={thing.shape for thing in seen} == {thing.shape for thing in things},
        count=len(seen) == count_of(scene),
        binding={(one.colour, one.shape) for one in seen} == {(one.colour, one.shape) for one in things},
        texture={thing.texture for thing in seen} == {thing.texture for thing in things},
        relation=_relation(scene, seen) if isinstance(scene, Pair) else None,
        place=_place(scene, seen) if isinstance(scene, Group) and scene.place else None,
    )


def _relation(scene: Pair, seen: Sequence[SeenThing]) -> bool:
    by_kind = {(thing.colour, thing.shape): thing for thing in seen}
    first, second = (by_kind.get((thing.colour, thing.shape)) for thing in (scene.first, scene.second))
    if len(seen) != 2 or first is None or second is None:
        return False
    dx, dy = first.x - second.x, first.y - second.y
    direction = (1 if dx > 0 else -1, 0) if abs(dx) > abs(dy) else (0, 1 if dy > 0 else -1)
    return direction == words.RELATIONS[scene.relation]


def _place(scene: Group, seen: Sequence[SeenThing]) -> bool:
    if len(seen) != 1:
        return False
    middles = {name: middle for name, (_words, middle) in words.PLACES.items()}
    (thing,) = seen
    return scene.place == min(
        middles, key=lambda name: (thing.x - middles[name][0]) ** 2 + (thing.y - middles[name][1]) ** 2
    )


def in_words(seen: Sequence[SeenThing]) -> str:
    """What was seen, for a person: "2 striped red heart, 1 blue ring"."""
    counts: dict[str, int] = {}
    for thing in seen:
        texture = "" if thing.texture == "plain" else f"{thing.texture} "
        kind = f"{texture}{thing.colour} {thing.shape}"
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing"
