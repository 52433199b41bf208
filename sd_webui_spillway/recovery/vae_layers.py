"""The layers of a VAE's encoder or decoder in the order in which they run, for :mod:`.tiled_vae`.

Two structures are known: diffusers' (``up_blocks``, ``conv_norm_out``) and the original one of LDM, sgm and SD3
(``up``, ``norm_out``), which the WebUIs use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import nn

Activation = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Whole:
    """Runs over the whole map at once."""

    run: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Conv:
    """One 3×3 convolution."""

    conv: nn.Conv2d


@dataclass(frozen=True)
class Resnet:
    """Two times norm, activation, convolution; its input, or the shortcut's image of it, is added."""

    norm1: nn.GroupNorm
    conv1: nn.Module
    norm2: nn.GroupNorm
    conv2: nn.Module
    shortcut: nn.Module | None
    act: Activation
    scale: float = 1.0


@dataclass(frozen=True)
class Resize:
    """Twice or half the size; it reads one row more on the side where it reads beyond its own."""

    module: nn.Module
    up: bool


@dataclass(frozen=True)
class NormActConv:
    """The end of an encoder or decoder."""

    norm: nn.GroupNorm
    act: Activation
    conv: nn.Module


Layer = Whole | Conv | Resnet | Resize | NormActConv


def cannot_tile_because(module: nn.Module) -> str | None:
    """Why this encoder or decoder cannot run in strips; ``None`` if it can."""
    if _is_original(module):
        levels: Any = module.up if hasattr(module, "up") else module.down
        if any(len(getattr(level, "attn", ())) for level in levels):
            return "it has attention outside its middle block"
        if getattr(module, "tanh_out", False) or getattr(module, "give_pre_end", False):
            return f"the end of {type(module).__name__} is not known"
        norms = [norm for level in levels for block in level.block for norm in (block.norm1, block.norm2)]
    else:
        blocks = getattr(module, "up_blocks", None) or getattr(module, "down_blocks", None)
        if blocks is None or not hasattr(module, "mid_block") or not hasattr(module, "conv_norm_out"):
            return f"the structure of {type(module).__name__} is not known"
        if any(getattr(block, "attentions", None) for block in blocks):
            return "it has attention outside its middle block"
        norms = [norm for block in blocks for resnet in block.resnets for norm in (resnet.norm1, resnet.norm2)]
    if any(not isinstance(norm, nn.GroupNorm) for norm in norms):
        return "it normalises by something other than group norm"
    return None


def layers(module: Any) -> Iterator[Layer]:
    """The layers of an encoder or decoder that :func:`cannot_tile_because` has nothing against."""
    return _original_layers(module) if _is_original(module) else _diffusers_layers(module)


def _is_original(module: Any) -> bool:
    levels = hasattr(module, "up") or hasattr(module, "down")
    return levels and all(hasattr(module, name) for name in ("conv_in", "mid", "norm_out", "conv_out"))


def _diffusers_layers(module: Any) -> Iterator[Layer]:
    if hasattr(module, "up_blocks"):
        yield Whole(module.conv_in)
        yield Whole(module.mid_block)
        for block in module.up_blocks:
            yield from map(_diffusers_resnet, block.resnets)
            yield from (Resize(resize, up=True) for resize in block.upsamplers or ())
    else:
        yield Conv(module.conv_in)
        for block in module.down_blocks:
            yield from map(_diffusers_resnet, block.resnets)
            yield from (Resize(resize, up=False) for resize in block.downsamplers or ())
        yield Whole(module.mid_block)
    yield NormActConv(module.conv_norm_out, module.conv_act, module.conv_out)


def _diffusers_resnet(block: Any) -> Resnet:
    return Resnet(
        block.norm1, block.conv1, block.norm2, block.conv2, block.conv_shortcut, block.nonlinearity,
        block.output_scale_factor,
    )


def _original_layers(module: Any) -> Iterator[Layer]:
    middle = Whole(lambda x: _original_middle(module.mid, x))
    if hasattr(module, "up"):
        yield Whole(module.conv_in)
        yield middle
        for level in reversed(module.up):
            yield from map(_original_resnet, level.block)
            if hasattr(level, "upsample"):
                yield Resize(level.upsample, up=True)
    else:
        yield Conv(module.conv_in)
        for level in module.down:
            yield from map(_original_resnet, level.block)
            if hasattr(level, "downsample"):
                yield Resize(level.downsample, up=False)
        yield middle
    yield NormActConv(module.norm_out, _swish, module.conv_out)


def _original_resnet(block: Any) -> Resnet:
    shortcut = getattr(block, "conv_shortcut", None) or getattr(block, "nin_shortcut", None)
    return Resnet(block.norm1, block.conv1, block.norm2, block.conv2, shortcut, _swish)


def _original_middle(middle: Any, x: torch.Tensor) -> torch.Tensor:
    for block in (middle.block_1, middle.attn_1, middle.block_2):
        x = block(x, None) if "temb" in signature(block.forward).parameters else block(x)
    return x


def _swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)
