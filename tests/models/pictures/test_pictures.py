"""Drawn pictures: the same from the same seed, as the caption says, at any size."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch

from sd_webui_spillway.models.pictures import (
    Group,
    Landscape,
    Packed,
    Pair,
    Thing,
    caption,
    is_held_out,
    layers_of,
    pack,
    paint,
    random_scene,
    render,
)
from sd_webui_spillway.models.pictures import vocabulary as words
from sd_webui_spillway.models.pictures.layers import Drawing, Layer
from sd_webui_spillway.models.pictures.renderer import SHAPES

WHITE = (1.0, 1.0, 1.0)
RED_STAR = Thing("star", "red")


def scenes(count, seed=0, **kinds):
    random = Random(seed)
    return [random_scene(random, **kinds) for _ in range(count)]


@pytest.mark.parametrize(
    ("scene", "words_"),
    [
        (Group(RED_STAR, 1, "white"), "a red star on a white background"),
        (Group(Thing("ring", "orange"), 1, "grey", "left"), "an orange ring on the left on a grey background"),
        (Group(Thing("cross", "blue", "dotted", "small"), 3, "pink"),
         "three small dotted blue crosses on a pink background"),
        (Pair(RED_STAR, Thing("heart", "black"), "above", "blue"),
         "a red star above a black heart on a blue background"),
        (Landscape((("house", "red"), ("tree", "green")), "grass", "night", "moon"),
         "a red house and a tree on green grass under a white moon at night"),
    ],
)  # fmt: skip
def test_canonical_captions(scene, words_):
    assert caption(scene) == words_


def test_spoken_captions_keep_what_they_say():
    random = Random(1)
    spoken = {caption(Group(RED_STAR, 3, "white"), random) for _ in range(200)}
    assert len(spoken) > 5
    assert all("red stars" in text and ("three" in text or "3" in text) for text in spoken)
    assert any("background" not in text for text in spoken)


def test_the_same_seed_draws_the_same():
    first, second = (
        render([layers_of(scene, Random(7), 64) for scene in scenes(40)], 64, 64) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert first.min() >= 0
    assert first.max() <= 1


def test_a_thing_is_never_painted_in_the_colour_it_stands_on():
    for scene in scenes(2000):
        if isinstance(scene, Group):
            assert scene.thing.colour != scene.background
        if isinstance(scene, Pair):
            assert scene.background not in (scene.first.colour, scene.second.colour)
            assert (scene.first.shape, scene.first.colour) != (scene.second.shape, scene.second.colour)


@pytest.mark.parametrize("side", [64, 128, 256])
def test_things_lie_inside_and_apart(side):
    random = Random(side)
    for scene in scenes(600, seed=side, max_count=3 if side < 128 else 5):
        if not isinstance(scene, Group):
            continue
        layers = layers_of(scene, random, side).layers
        assert len(layers) == scene.count
        for index, layer in enumerate(layers):
            assert layer.half_width * side >= 10
            assert layer.half_width < layer.x < 1 - layer.half_width
            assert layer.half_height < layer.y < 1 - layer.half_height
            for other in layers[:index]:
                assert math.dist((layer.x, layer.y), (other.x, other.y)) >= 1.9 * layer.half_width


@pytest.mark.parametrize("place", [place for place in words.PLACES if place != "middle"])
def test_a_place_is_where_it_says(place):
    for seed in range(20):
        (layer,) = layers_of(Group(RED_STAR, 1, "white", place), Random(seed)).layers
        x, y = words.PLACES[place][1]
        assert abs(layer.x - x) < 0.05
        assert abs(layer.y - y) < 0.05


@pytest.mark.parametrize("relation", words.RELATIONS)
def test_a_relation_is_as_it_says(relation):
    scene = Pair(RED_STAR, Thing("heart", "black"), relation, "white")
    for seed in range(20):
        layers = {layer.shape: layer for layer in layers_of(scene, Random(seed)).layers}
        dx, dy = words.RELATIONS[relation]
        apart = (layers["star"].x - layers["heart"].x) * dx + (layers["star"].y - layers["heart"].y) * dy
        assert apart > 0.3


def test_shapes_differ_and_fill_their_frame():
    drawings = [Drawing(WHITE, WHITE, (Layer(shape, 0.5, 0.5, 0.4, 0.4, (0, 0, 0)),)) for shape in SHAPES]
    ink = 1 - render(drawings, 64, 64)[:, 0]
    for index, one in enumerate(ink):
        assert 0.08 < one.mean() < 0.6
        assert all((one - other).abs().mean() > 0.02 for other in ink[:index])
        columns = torch.nonzero(one.amax(0) > 0.5)
        assert columns.max() - columns.min() > 30


@pytest.mark.parametrize(("height", "width"), [(64, 96), (96, 64)])
def test_shapes_keep_their_proportions_in_any_picture(height, width):
    drawing = Drawing(WHITE, WHITE, (Layer("circle", 0.5, 0.5, 0.3, 0.3, (0, 0, 0)),))
    ink = 1 - render([drawing], height, width)[0, 0]
    across = (ink.amax(0) > 0.5).sum()
    down = (ink.amax(1) > 0.5).sum()
    assert abs(across - down) <= 1


def test_textures_show_two_shades():
    for texture in words.TEXTURES:
        layer = Layer("square", 0.5, 0.5, 0.45, 0.45, words.COLOURS["red"], texture)
        inside = render([Drawing(WHITE, WHITE, (layer,))], 128, 128)[0, :, 40:88, 40:88]
        shades = torch.unique((inside[0] * 20).round())
        assert len(shades) == (1 if texture == "plain" else 2), texture


def test_one_in_twenty_combinations_is_held_out_whatever_size_and_place():
    some = scenes(6000)
    assert 0.035 < sum(map(is_held_out, some)) / len(some) < 0.065
    for scene in some:
        if isinstance(scene, Group) and scene.count == 1:
            thing = Thing(scene.thing.shape, scene.thing.colour, scene.thing.texture, "big")
            assert is_held_out(Group(thing, 1, scene.background, "left")) == is_held_out(scene)


def test_packed_drawings_paint_the_same():
    drawings = [layers_of(scene, Random(3), 64) for scene in scenes(12)]
    packed = Packed.joined([pack(drawings[:5]), pack(drawings[5:])])
    assert torch.equal(paint(packed, 64, 64), render(drawings, 64, 64))
    assert torch.equal(paint(packed.of(slice(3, 6)), 64, 64), render(drawings[3:6], 64, 64))
    assert render([], 64, 64).shape == (0, 3, 64, 64)
