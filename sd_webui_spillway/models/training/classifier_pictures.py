"""What the classifier learns from: drawings with the things in them, and what a VAE or a file format does to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from ..pictures import Group, Landscape, Pair, layers_of, random_scene, render
from ..pictures import vocabulary as words
from ..pictures.layers import Drawing, Layer
from .classifier import COLOURS, SHAPES, TEXTURES, UNKNOWN_SHAPE, SeenThing
from .judging import things_of

MOST_THINGS = 7
_UNKNOWN = ("crescent", "hull")
_CHUNK = 256


@dataclass(frozen=True)
class Vocabulary:
    """The shapes and colours that appear; all of them, but for a quick test."""

    shapes: tuple[str, ...] = words.SHAPES
    colours: tuple[str, ...] = COLOURS


@dataclass(frozen=True)
class Pool:
    """Drawn pictures kept on a device, and where which things are in them."""

    pictures: Tensor
    """[n, 3, side, side], uint8."""
    middles: Tensor
    """[n, MOST_THINGS, 2]: x and y as fractions of width and height."""
    names: Tensor
    """[n, MOST_THINGS, 3]: numbers of shape, colour and texture; −1 where there is no further thing."""


def seen_in(drawing: Drawing) -> tuple[SeenThing, ...]:
    """What a faultless classifier would see in the drawing of a group, a pair or a mixture."""
    return tuple(
        SeenThing(layer.shape if layer.shape in SHAPES else UNKNOWN_SHAPE, _colour_of(layer), layer.texture,
                  layer.x, layer.y) for layer in drawing.layers
    )  # fmt: skip


def _colour_of(layer: Layer) -> str:
    return min(COLOURS, key=lambda name: math.dist(words.COLOURS[name], layer.colour))


def mixture(random: Random, vocabulary: Vocabulary) -> Drawing:
    """None to seven things that need not be alike: what no caption says, but a model that errs may draw.

    A few are of a shape that has no name, and each is stretched a little.
    """
    ground = random.choice(tuple(words.BACKGROUNDS))
    colours = [name for name in vocabulary.colours if name != ground]
    count = random.choices(range(MOST_THINGS + 1), weights=(1, 6, 6, 5, 5, 5, 4, 2))[0]
    largest = (0.34, 0.34, 0.24, 0.2, 0.17, 0.15, 0.13, 0.12)[count]
    alike = random.random() < 0.4
    usual = (random.choice(vocabulary.shapes), random.choice(colours), random.choice(TEXTURES))
    layers: list[Layer] = []
    for _ in range(200):
        if len(layers) == count:
            break
        radius = random.uniform(0.078, largest)
        x, y = (random.uniform(radius, 1 - radius) for _ in range(2))
        gap = random.uniform(-0.01, 0.04)
        if any(math.dist((x, y), (other.x, other.y)) < radius + other.half_width + gap for other in layers):
            continue
        shape, colour, texture = usual
        if not alike or random.random() < 0.15:
            shape, colour = random.choice(vocabulary.shapes), random.choice(colours)
            texture = random.choice(TEXTURES) if random.random() < 0.5 else "plain"
        if random.random() < 0.05:
            shape = random.choice(_UNKNOWN)
        stretch = random.uniform(0.93, 1.07)
        red, green, blue = (part + random.uniform(-0.02, 0.02) for part in words.COLOURS[colour])
        layers.append(Layer(
            shape, x, y, radius * stretch, radius / stretch, (red, green, blue), texture, random.uniform(-0.25, 0.25)
        ))  # fmt: skip
    return Drawing(words.BACKGROUNDS[ground], words.BACKGROUNDS[ground], tuple(layers))


def things_scene(random: Random, vocabulary: Vocabulary) -> Group | Pair:
    """A group or a pair of the vocabulary, one in ten striped; landscapes hold no things and are left out."""
    while True:
        scene = random_scene(random, striped=random.random() < 0.1)
        if not isinstance(scene, Landscape) and all(
            thing.shape in vocabulary.shapes and thing.colour in vocabulary.colours for thing in things_of(scene)
        ):
            return scene


def _drawing(random: Random, vocabulary: Vocabulary, side_pixels: int) -> Drawing:
    if random.random() < 0.5:
        return mixture(random, vocabulary)
    return layers_of(things_scene(random, vocabulary), random, side_pixels)


def draw_pool(
    count: int, side_pixels: int, device: torch.device, random: Random, vocabulary: Vocabulary,
    progress: Callable[[int, int], None] | None = None,
) -> Pool:  # fmt: skip
    """``count`` pictures, drawn in chunks; ``progress`` is told how many are done, of how many."""
    pictures, middles, names = [], [], []
    for start in range(0, count, _CHUNK):
        drawings = [_drawing(random, vocabulary, side_pixels) for _ in range(min(_CHUNK, count - start))]
        pictures.append((render(drawings, side_pixels, side_pixels, device) * 255).round().to(torch.uint8))
        for drawing in drawings:
            things = seen_in(drawing)
            empty = MOST_THINGS - len(things)
            middles.append([(thing.x, thing.y) for thing in things] + [(0.0, 0.0)] * empty)
            names.append(
                [(SHAPES.index(thing.shape), COLOURS.index(thing.colour), TEXTURES.index(thing.texture))
                 for thing in things] + [(-1, -1, -1)] * empty
            )  # fmt: skip
        if progress:
            progress(start + len(drawings), count)
    return Pool(torch.cat(pictures), torch.tensor(middles, device=device), torch.tensor(names, device=device))


def softened(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """[n, 3, side, side] from 0 to 1 → the same, each a little blurred or sharpened, its colours smeared and off by up
    to two parts in a hundred, noisy: a VAE's and a JPEG's marks, so that a model is judged for what it draws."""

    def chance(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=pictures.device)

    count, _, side, _ = pictures.shape
    if float(chance(1)) < 0.4:
        lower = int(side * (0.5 + 0.4 * float(chance(1))))
        small = functional.interpolate(pictures, size=(lower, lower), mode="bilinear", antialias=True)
        pictures = functional.interpolate(small, size=(side, side), mode="bilinear")
    taps = torch.exp(-(torch.arange(-2, 3, device=pictures.device) ** 2) / (2 * 1.1**2))
    kernel = (taps[:, None] * taps / taps.sum() ** 2).expand(3, 1, 5, 5)
    blurred = functional.conv2d(functional.pad(pictures, (2, 2, 2, 2), mode="replicate"), kernel, groups=3)
    pictures = pictures + (blurred - pictures) * (chance(count, 1, 1, 1) * 1.3 - 0.3)
    grey = pictures.mean(dim=1, keepdim=True)
    smeared = functional.interpolate(
        functional.avg_pool2d(pictures - grey, 2), scale_factor=2, mode="bilinear", align_corners=False
    )
    pictures = pictures + (grey + smeared - pictures) * chance(count, 1, 1, 1)
    pictures = pictures * (0.98 + 0.04 * chance(count, 3, 1, 1)) + (chance(count, 3, 1, 1) - 0.5) * 0.04
    uneven = functional.interpolate((chance(count, 3, 8, 8) - 0.5) * 0.04, size=(side, side), mode="bilinear")
    noise = torch.randn(pictures.shape, generator=generator, device=pictures.device) * chance(count, 1, 1, 1) * 0.03
    return (pictures + uneven + noise).clamp(0, 1)
