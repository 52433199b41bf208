"""Painting many drawings at once, on whichever device: signed distances to edges, so every edge is smooth.

Distances after Inigo Quilez, "2D distance functions" (iquilezles.org/articles/distfunctions2d), simplified: only the
last pixel before an edge has to be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .layers import MAX_LAYERS, Drawing
from .vocabulary import TEXTURES

Distance = Callable[[Tensor, Tensor], Tensor]


def _circle(x: Tensor, y: Tensor) -> Tensor:
    return torch.hypot(x, y) - 0.95


def _square(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x.abs(), y.abs()) - 0.78


def _triangle(x: Tensor, y: Tensor) -> Tensor:
    y = y - 0.2
    return torch.maximum(y, x.abs() * 0.866 - y * 0.5) - 0.55


def _star(x: Tensor, y: Tensor) -> Tensor:
    part = math.tau / 10
    turn = torch.remainder(torch.atan2(x, -y) + part, 2 * part) - part
    radius = torch.hypot(x, y)
    along, across = radius * torch.cos(turn), radius * torch.sin(turn).abs()
    inner_x, inner_y = 0.45 * math.cos(part), 0.45 * math.sin(part)
    length = math.hypot(inner_y, 1 - inner_x)
    return ((along - 1) * inner_y + across * (1 - inner_x)) / length


def _heart(x: Tensor, y: Tensor) -> Tensor:
    scale = 1.6
    x, y = x.abs() / scale, (0.9 - y) / scale
    lobe = torch.hypot(x - 0.25, y - 0.75) - math.sqrt(2) / 4
    half = (x + y).clamp_min(0) / 2
    point = torch.minimum(torch.hypot(x, y - 1), torch.hypot(x - half, y - half)) * torch.sign(x - y)
    return torch.where(x + y > 1, lobe, point) * scale


def _ring(x: Tensor, y: Tensor) -> Tensor:
    return (torch.hypot(x, y) - 0.7).abs() - 0.22


def _cross(x: Tensor, y: Tensor) -> Tensor:
    x, y = x.abs(), y.abs()
    return torch.minimum(torch.maximum(x - 0.92, y - 0.3), torch.maximum(x - 0.3, y - 0.92))


def _diamond(x: Tensor, y: Tensor) -> Tensor:
    return (x.abs() * 1.35 + y.abs() - 1) / math.hypot(1.35, 1)


def _crescent(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(torch.hypot(x, y) - 0.95, 0.8 - torch.hypot(x - 0.45, y + 0.2))


def _hull(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(torch.maximum(-y - 0.1, y - 0.9), (x.abs() + y * 0.4 - 0.95) * 0.93)


SHAPES: dict[str, Distance] = {
    "circle": _circle, "square": _square, "triangle": _triangle, "star": _star, "heart": _heart, "ring": _ring,
    "cross": _cross, "diamond": _diamond, "crescent": _crescent, "hull": _hull,
}  # fmt: skip
"""Shape → signed distance to its edge, negative inside, in a frame where the shape reaches to about ±1, y down."""
_NUMBERS = {name: number for number, name in enumerate(SHAPES)}
_NOTHING = -1


def _pattern(texture: int, x: Tensor, y: Tensor) -> Tensor:
    """1 where the second shade shows, 0 where the first does."""
    name = TEXTURES[texture]
    if name == "dotted":
        middle_x, middle_y = torch.remainder(x, 0.5) - 0.25, torch.remainder(y, 0.5) - 0.25
        return (torch.hypot(middle_x, middle_y) < 0.14).to(x.dtype)
    if name == "checkered":
        return torch.remainder(torch.floor(x / 0.36) + torch.floor(y / 0.36), 2)
    return (torch.remainder(x + y, 0.56) < 0.28).to(x.dtype)


def _second_shade(colour: Tensor) -> Tensor:
    """Darker where the colour is light, lighter where it is dark; [n, 3] → [n, 3]."""
    light = (colour @ colour.new_tensor([0.3, 0.59, 0.11]))[:, None] > 0.3
    return torch.where(light, colour * 0.5, colour * 0.5 + 0.45)


@dataclass(frozen=True)
class Packed:
    """Drawings as tensors, to be sent to a device or another process at once."""

    grounds: Tensor
    """[n, 2, 3]: the background's colour at the top and at the bottom."""
    numbers: Tensor
    """[n, layers, 2]: shape, or -1 for none, and texture."""
    values: Tensor
    """[n, layers, 8]: x, y, half width, half height, angle, colour."""

    def __len__(self) -> int:
        return len(self.grounds)

    def to(self, device: torch.device | str) -> Packed:
        """The same on another device."""
        return Packed(self.grounds.to(device), self.numbers.to(device), self.values.to(device))

    def of(self, which: Tensor | slice) -> Packed:
        """Some of the drawings."""
        return Packed(self.grounds[which], self.numbers[which], self.values[which])

    @staticmethod
    def joined(parts: Sequence[Packed]) -> Packed:
        """All drawings of all parts, in order."""
        return Packed(
            torch.cat([part.grounds for part in parts]),
            torch.cat([part.numbers for part in parts]),
            torch.cat([part.values for part in parts]),
        )


def pack(drawings: Sequence[Drawing]) -> Packed:
    """The drawings' numbers, on system memory."""
    grounds, numbers, values = [], [], []
    for drawing in drawings:
        empty = MAX_LAYERS - len(drawing.layers)
        if empty < 0:
            raise ValueError(f"a drawing has {len(drawing.layers)} layers; {MAX_LAYERS} are the most")
        grounds.append((drawing.top, drawing.bottom))
        known = [(_NUMBERS[layer.shape], TEXTURES.index(layer.texture)) for layer in drawing.layers]
        numbers.append(known + [(_NOTHING, 0)] * empty)
        placed = [
            (layer.x, layer.y, layer.half_width, layer.half_height, layer.angle, *layer.colour)
            for layer in drawing.layers
        ]
        values.append(placed + [(0.0,) * 8] * empty)
    return Packed(
        torch.tensor(grounds).reshape(-1, 2, 3),
        torch.tensor(numbers, dtype=torch.long).reshape(-1, MAX_LAYERS, 2),
        torch.tensor(values).reshape(-1, MAX_LAYERS, 8),
    )


def render(drawings: Sequence[Drawing], height: int, width: int, device: torch.device | str = "cpu") -> Tensor:
    """Pictures [n, 3, height, width], sRGB from 0 to 1. Lengths are taken of the shorter side, middles of each."""
    return paint(pack(drawings).to(device), height, width)


def paint(packed: Packed, height: int, width: int) -> Tensor:
    """Like :func:`render`, on the device where the numbers are."""
    grounds, numbers, values = packed.grounds, packed.numbers, packed.values
    rows = (torch.arange(height, device=grounds.device) + 0.5) / height
    columns = (torch.arange(width, device=grounds.device) + 0.5) / width
    top, bottom = (grounds[:, index, :, None, None] for index in (0, 1))
    pictures = (top + (bottom - top) * rows[None, None, :, None]).expand(-1, -1, -1, width).contiguous()
    side = min(height, width)
    for depth in range(numbers.shape[1]):
        for number, texture in torch.unique(numbers[:, depth], dim=0).tolist():
            if number == _NOTHING:
                continue
            which = torch.nonzero((numbers[:, depth] == numbers.new_tensor([number, texture])).all(dim=1)).squeeze(1)
            chosen = values[which, depth]
            x, y, half_width, half_height, angle = (chosen[:, index, None, None] for index in range(5))
            across, down = (columns[None, None, :] - x) * width / side, (rows[None, :, None] - y) * height / side
            sine, cosine = torch.sin(angle), torch.cos(angle)
            local_x = (across * cosine + down * sine) / half_width
            local_y = (down * cosine - across * sine) / half_height
            distance = SHAPES[list(SHAPES)[number]](local_x, local_y)
            cover = (0.5 - distance * torch.minimum(half_width, half_height) * side).clamp(0, 1)[:, None]
            colour = chosen[:, 5:, None, None]
            if texture:
                second = _second_shade(chosen[:, 5:])[:, :, None, None]
                colour = colour + (second - colour) * _pattern(texture, local_x, local_y)[:, None]
            pictures[which] += (colour - pictures[which]) * cover
    return pictures.clamp(0, 1)
