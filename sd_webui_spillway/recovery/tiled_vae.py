"""Exact tiled VAE: the whole picture's result, layer by layer, with only a strip of each layer on the card.

Usual tiling normalises each tile with its own statistics, which is visibly wrong (mean 9/255, worst 140/255 on random
decoders). Here all strips advance together from one group norm to the next, share its statistics, and wait in between,
in system memory where the card has no room for them. Each strip carries the one row above and below that a 3×3
convolution reads. The middle block, with its attention, runs whole; it works at an eighth of the picture's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..placement.card import Card
from .method_patch import MethodPatch
from .vae_layers import Activation, Conv, Layer, NormActConv, Resize, Resnet, Whole, layers

_COPIES_PER_STRIP = 10
"""Strips of one layer alive at once at the worst moment: input, float32 copies for the norm, output, statistics."""
_SHARE_FOR_STRIP = 0.4
_SHARE_FOR_MAP = 0.2
"""Of what is free. At most three layers' outputs are alive at once, so they and a strip leave some of it free."""
_MIN_ROWS = 8


@contextmanager
def tiled_forward(module: nn.Module, card: Card) -> Iterator[None]:
    """While open, ``module`` (a VAE's encoder or decoder) runs in strips."""
    known = list(layers(module))

    def around(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        del original
        sample = args[0] if args else kwargs["sample"]
        return _Strips(card, known).run(sample)

    patch = MethodPatch(module, "forward", around)
    try:
        yield
    finally:
        patch.undo()


class _Map:
    """One layer's output (N, C, H, W), kept as strips of rows, and per sample and channel the sums (N, C) of its values
    and of their squares, float64 on the card."""

    def __init__(self, card: Card, strips: Iterable[torch.Tensor], height: int) -> None:
        """``strips`` are consecutive rows, on the card, ``height`` in all. They stay there if all of them may."""
        self._card = card
        self._parts: list[torch.Tensor] = []
        self._starts: list[int] = []
        self.height = 0
        stays = False
        for strip in strips:
            if not self._parts:
                self.row_shape = (strip.shape[0], strip.shape[1], strip.shape[3])
                self.row_bytes = strip.nbytes // strip.shape[2]
                stays = self.row_bytes * height <= _SHARE_FOR_MAP * card.free_bytes()
                self.sums = self.squares = strip.new_zeros(strip.shape[:2], dtype=torch.float64)
            self.sums = self.sums + strip.sum((2, 3), dtype=torch.float64)
            self.squares = self.squares + strip.float().square().sum((2, 3), dtype=torch.float64)
            self._starts.append(self.height)
            self._parts.append(strip if stays else card.fetch(strip))
            self.height += strip.shape[2]

    def rows(self, first: int, last: int) -> torch.Tensor:
        """Rows ``first`` to ``last``, on the card; not to be written to."""
        pieces = []
        for start, part in zip(self._starts, self._parts, strict=True):
            piece = part[:, :, max(0, first - start) : max(0, last - start)]
            if piece.shape[2]:
                pieces.append(piece if self._card.holds(piece) else self._card.put(piece))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=2)


class _Strips:
    """One run over one input."""

    def __init__(self, card: Card, known: list[Layer]) -> None:
        self._card = card
        self._layers = known

    def run(self, sample: torch.Tensor) -> torch.Tensor:
        current = _Map(self._card, [sample], sample.shape[2])
        for layer in self._layers:
            current = self._apply(layer, current)
        return current.rows(0, current.height)

    def _apply(self, layer: Layer, x: _Map) -> _Map:
        if isinstance(layer, Whole):
            output = layer.run(x.rows(0, x.height))
            return _Map(self._card, [output], output.shape[2])
        if isinstance(layer, Conv):
            conv = layer.conv
            widens = -(-conv.out_channels // conv.in_channels)
            return self._by_strips(x, lambda first, last: self._convolve(x, first, last, conv), growth=widens)
        if isinstance(layer, NormActConv):
            end, norm = layer, self._normaliser(layer.norm, x)
            return self._by_strips(x, lambda first, last: self._convolve(x, first, last, end.conv, norm, end.act))
        if isinstance(layer, Resize):
            return self._resize(layer, x)
        return self._resnet(layer, x)

    def _resnet(self, block: Resnet, x: _Map) -> _Map:
        norm1 = self._normaliser(block.norm1, x)
        inner = self._by_strips(x, lambda first, last: self._convolve(x, first, last, block.conv1, norm1, block.act))
        norm2 = self._normaliser(block.norm2, inner)

        def strip(first: int, last: int) -> torch.Tensor:
            residual = self._convolve(inner, first, last, block.conv2, norm2, block.act)
            straight = x.rows(first, last)
            if block.shortcut is not None:
                straight = block.shortcut(straight)
            return (straight + residual) / block.scale

        return self._by_strips(inner, strip)

    def _resize(self, layer: Resize, x: _Map) -> _Map:
        def enlarged(first: int, last: int) -> torch.Tensor:
            above, below = min(1, first), min(1, x.height - last)
            output: torch.Tensor = layer.module(x.rows(first - above, last + below))
            return output[:, :, 2 * above : output.shape[2] - 2 * below]

        def reduced(first: int, last: int) -> torch.Tensor:
            # Output row i reads input rows 2i to 2i+2; past the last one the module itself adds a row of zeros.
            return layer.module(x.rows(2 * first, min(2 * last + 1, x.height)))  # type: ignore[no-any-return]

        if layer.up:
            return self._by_strips(x, enlarged, height=2 * x.height, growth=4)
        return self._by_strips(x, reduced, rows=x.height // 2)

    def _convolve(
        self,
        x: _Map,
        first: int,
        last: int,
        conv: nn.Module,
        norm: Callable[[torch.Tensor], torch.Tensor] | None = None,
        act: Activation | None = None,
    ) -> torch.Tensor:
        """Rows ``first`` to ``last`` of conv(act(norm(x))). The convolution pads with zeros all round, which is right
        at the picture's edge and cut away elsewhere."""
        above, below = min(1, first), min(1, x.height - last)
        strip = x.rows(first - above, last + below)
        if norm is not None and act is not None:
            strip = act(norm(strip))
        output: torch.Tensor = conv(strip)
        return output[:, :, above : output.shape[2] - below]

    def _normaliser(self, norm: nn.GroupNorm, x: _Map) -> Callable[[torch.Tensor], torch.Tensor]:
        """The group norm with the whole map's statistics, as one multiply and one add per channel."""
        samples, channels, width = x.row_shape
        count = x.height * width * channels // norm.num_groups
        means = x.sums.view(samples, norm.num_groups, -1).sum(2) / count
        variances = x.squares.view(samples, norm.num_groups, -1).sum(2) / count - means.square()
        scales = (variances.clamp(min=0) + norm.eps).rsqrt()
        # The norm is not called, so a placement may have its weights in system memory: bring copies.
        gain = self._card.put(norm.weight.data).double().view(1, norm.num_groups, -1)
        bias = self._card.put(norm.bias.data).double().view(1, norm.num_groups, -1)
        factor = (gain * scales[:, :, None]).reshape(samples, channels, 1, 1).float()
        offset = (bias - gain * (means * scales)[:, :, None]).reshape(samples, channels, 1, 1).float()
        return lambda strip: torch.addcmul(offset, strip.float(), factor).to(strip.dtype)

    def _by_strips(
        self,
        x: _Map,
        function: Callable[[int, int], torch.Tensor],
        *,
        rows: int | None = None,
        height: int | None = None,
        growth: int = 1,
    ) -> _Map:
        """``function(first, last)`` over all ``rows`` (the map's own by default), a strip of them at a time.

        ``height`` is what comes out in all, where that is not ``rows``; ``growth`` how many values come out for each
        one that goes in.
        """
        total = x.height if rows is None else rows
        step = max(1, max(_MIN_ROWS, self._rows_at_once(x)) // growth)
        strips = (function(first, min(first + step, total)) for first in range(0, total, step))
        return _Map(self._card, strips, height or total)

    def _rows_at_once(self, x: _Map) -> int:
        at_once = int(self._card.free_bytes() * _SHARE_FOR_STRIP) // (x.row_bytes * _COPIES_PER_STRIP)
        return min(x.height, at_once)
