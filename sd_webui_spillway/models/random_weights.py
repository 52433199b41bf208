"""Random weights, quickly, and such that a network of any depth stays finite in float16.

Everything is filled under its name in the original layout, from the seed and that name alone. So a file and modules
made from the same seed hold the same numbers, in whatever order and with however many threads.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from .building import Modules, component_dtypes, empty_modules, hold
from .families import ModelConfig
from .ldm_layout import PREFIXES, VAE, State, to_diffusers, to_ldm

_POOL = 4_194_301
"""Normal numbers drawn once (16 MiB); every tensor is a stretch of them, repeated. A prime, so that no width of a
layer divides it and no two rows come out alike."""


class NoisePool:
    """Fills tensors at the speed of memory: an SDXL has 3.5 billion weights, too many to draw one by one."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._pool = torch.randn(_POOL, generator=generator)
        self._seed = seed

    def fill(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The tensor of this name in the original layout, on system memory."""
        mean, deviation = moments(name, shape)
        flat = torch.empty(math.prod(shape), dtype=dtype)
        start, done = zlib.crc32(f"{self._seed}:{name}".encode()) % _POOL, 0
        while done < flat.numel():
            piece = self._pool[start : start + flat.numel() - done]
            target = flat[done : done + piece.numel()]
            torch.mul(piece, deviation, out=target)
            start, done = 0, done + piece.numel()
        return (flat.add_(mean) if mean else flat).reshape(tuple(shape))


def moments(name: str, shape: Sequence[int]) -> tuple[float, float]:
    """Mean and standard deviation for a weight: one over the square root of its inputs, so that a layer's output is
    as large as its input; near 1 for norms, near 0 for biases."""
    if name.endswith("bias"):
        return 0.0, 0.02
    if name.endswith("logit_scale"):
        return math.log(100), 0.0
    if len(shape) == 1:
        return 1.0, 0.02
    if "token_embedding" in name:
        return 0.0, 0.02
    if "position" in name:
        return 0.0, 0.01
    deviation = 1 / math.sqrt(math.prod(shape[1:]))
    # Both follow a norm and SiLU, which leave 0.6 of the size. A UNet predicts noise of size 1; a picture's values
    # lie within ±1, and at 0.4 few of them are cut off.
    if name.endswith("diffusion_model.out.2.weight"):
        return 0.0, deviation * 1.6
    if name.endswith("decoder.conv_out.weight"):
        return 0.0, deviation * 0.67
    return 0.0, deviation


def ldm_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every weight that the model's modules have, by its name in a file."""
    empty = to_ldm(empty_modules(config).states(), config)
    return {name: tuple(tensor.shape) for name, tensor in empty.items()}


def random_modules(config: ModelConfig, seed: int, dtype: torch.dtype) -> Modules:
    """The model's modules with random weights, in memory only. The global random state is left alone."""
    pool = NoisePool(seed)
    dtypes = component_dtypes(config, dtype)
    vae_prefix = PREFIXES[config.family][VAE]
    modules = empty_modules(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in to_ldm(modules.states(), config).items()}
    tensors: State = {
        name: pool.fill(name, shape, dtypes[VAE] if name.startswith(vae_prefix) else dtype)
        for name, shape in shapes.items()
    }
    parts = to_diffusers(tensors, config)
    tensors.clear()
    return hold(modules, parts, dtypes, "the random model")
