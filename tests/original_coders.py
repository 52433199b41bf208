"""VAE encoders and decoders in the structure of LDM, sgm and SD3, in small: their names, and the order they run in."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def _act(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


class OriginalResnet(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inner, eps=1e-6), nn.Conv2d(inner, outer, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, outer, eps=1e-6), nn.Conv2d(outer, outer, 3, padding=1)
        if inner != outer:
            self.nin_shortcut = nn.Conv2d(inner, outer, 1)

    def forward(self, x: torch.Tensor, temb: None) -> torch.Tensor:
        del temb
        inner = self.conv1(_act(self.norm1(x)))
        straight = self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x
        return straight + self.conv2(_act(self.norm2(inner)))


class OriginalAttention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.q = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.q(self.norm(x)).flatten(2).transpose(1, 2)[:, None].contiguous()
        return x + functional.scaled_dot_product_attention(rows, rows, rows)[:, 0].transpose(1, 2).reshape(x.shape)


class OriginalUpsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(functional.interpolate(x, scale_factor=2.0, mode="nearest"))


class OriginalDownsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(functional.pad(x, (0, 1, 0, 1)))


class _Coder(nn.Module):
    def __init__(self, first: int, last: int, outer: int, into: int) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(into, first, 3, padding=1)
        self.mid = nn.Module()
        middle = max(first, last)
        self.mid.block_1, self.mid.block_2 = OriginalResnet(middle, middle), OriginalResnet(middle, middle)
        self.mid.attn_1 = OriginalAttention(middle)
        self.norm_out, self.conv_out = nn.GroupNorm(4, last, eps=1e-6), nn.Conv2d(last, outer, 3, padding=1)

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return self.mid.block_2(self.mid.attn_1(self.mid.block_1(x, None)), None)

    def end(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_out(_act(self.norm_out(x)))


class OriginalDecoder(_Coder):
    """Twice the latents' size."""

    def __init__(self) -> None:
        super().__init__(16, 8, 3, 4)
        self.up = nn.ModuleList([_level(8, 8), _level(16, 8, upsample=OriginalUpsample(8))])

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = self.middle(self.conv_in(z))
        for level in reversed(self.up):
            x = level.block[0](x, None)
            x = level.upsample(x) if hasattr(level, "upsample") else x
        return self.end(x)


class OriginalEncoder(_Coder):
    """Half the picture's size."""

    def __init__(self) -> None:
        super().__init__(8, 8, 8, 3)
        self.down = nn.ModuleList([_level(8, 8, downsample=OriginalDownsample(8)), _level(8, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv_in(x)
        for level in self.down:
            x = level.block[0](x, None)
            x = level.downsample(x) if hasattr(level, "downsample") else x
        return self.end(self.middle(x))


def _level(inner: int, outer: int, **resize: nn.Module) -> nn.Module:
    level = nn.Module()
    level.block, level.attn = nn.ModuleList([OriginalResnet(inner, outer)]), nn.ModuleList()
    for name, module in resize.items():
        level.add_module(name, module)
    return level
