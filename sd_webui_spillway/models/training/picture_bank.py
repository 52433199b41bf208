"""Drawings and captions by the ten thousand, from a seed, on as many processor cores as there are."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from ..pictures import Drawing, Packed, caption, is_held_out, layers_of, pack, random_scene

_SHARD = 2_000
CAPTIONS_EACH = 2
_MOST_PROCESSES = 60
"""Windows waits for no more than 63 handles."""
Advance = Callable[[int, int], None]


@dataclass(frozen=True)
class Bank:
    """Pictures to be painted, and for each of them two captions."""

    drawings: Packed
    captions: list[tuple[str, ...]]


@dataclass(frozen=True)
class Order:
    """Which pictures: any two with the same order are equal."""

    seed: int
    count: int
    side_pixels: int
    """What they will be painted at: smaller pictures hold fewer and larger things."""
    striped: bool = False
    every_combination: bool = False
    """Held-out combinations too: right for an autoencoder, which sees no caption, wrong for everything else."""

    @property
    def max_count(self) -> int:
        """Most things in a picture of this side."""
        return 5 if self.side_pixels >= 128 else 3


def _shard(order: Order, index: int) -> tuple[list[Any], list[tuple[str, ...]]]:
    """Arrays, because tensors would travel between processes through one shared file each."""
    random = Random(f"{order.seed}/{order.side_pixels}/{order.striped}/{index}")  # noqa: S311 - pictures, not secrets
    drawings: list[Drawing] = []
    captions: list[tuple[str, ...]] = []
    while len(drawings) < min(_SHARD, order.count - index * _SHARD):
        scene = random_scene(random, order.max_count, striped=order.striped)
        if order.every_combination or not is_held_out(scene):
            drawings.append(layers_of(scene, random, order.side_pixels))
            captions.append(tuple(caption(scene, random) for _ in range(CAPTIONS_EACH)))
    packed = pack(drawings)
    return [packed.grounds.numpy(), packed.numbers.numpy(), packed.values.numpy()], captions


def draw_bank(order: Order, advance: Advance | None = None) -> Bank:
    """The pictures of an order. ``advance(done, total)`` is called as they come."""
    shards = -(-order.count // _SHARD)
    parts = []
    if shards == 1:
        parts.append(_shard(order, 0))
    else:
        context = multiprocessing.get_context("spawn")  # a fork of a process that runs CUDA is not safe
        with ProcessPoolExecutor(min(shards, os.cpu_count() or 1, _MOST_PROCESSES), mp_context=context) as pool:
            for done, part in enumerate(pool.map(_shard, [order] * shards, range(shards)), 1):
                parts.append(part)
                if advance is not None:
                    advance(min(done * _SHARD, order.count), order.count)
    drawings = Packed.joined([Packed(*map(torch.from_numpy, arrays)) for arrays, _ in parts])
    return Bank(drawings, [words for _, captions in parts for words in captions])
