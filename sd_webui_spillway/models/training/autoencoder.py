"""Training the VAE: drawn pictures in, the same pictures out, through latents eight times as narrow and high."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..pictures import Packed, paint
from .loop import Clock, Report, Stage, averaged, half_precision
from .recipe import AutoencoderRecipe

PAINTED_AT_ONCE = 1024
_SIDES = (256, 64)
_CROP = 128


def painted(drawings: Packed, side_pixels: int, device: torch.device) -> Tensor:
    """Pictures [n, 3, side, side] as bytes on the device."""
    parts = []
    for start in range(0, len(drawings), PAINTED_AT_ONCE):
        part = drawings.of(slice(start, start + PAINTED_AT_ONCE)).to(device)
        parts.append((paint(part, side_pixels, side_pixels) * 255).round().to(torch.uint8))
    return torch.cat(parts)


def as_input(pictures: Tensor) -> Tensor:
    """Bytes → what a VAE takes: −1 to 1."""
    return pictures.float() / 127.5 - 1


def edges(pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Differences to the right and lower neighbour."""
    return pictures[..., :, 1:] - pictures[..., :, :-1], pictures[..., 1:, :] - pictures[..., :-1, :]


def loss(vae: Any, pictures: Tensor, recipe: AutoencoderRecipe, generator: torch.Generator) -> Tensor:
    """How far the rebuilt pictures [n, 3, h, w] are off: absolute difference, that of their edges, and a little for
    latents that are no standard normal."""
    moments = vae.encode(pictures).latent_dist
    noise = torch.randn(moments.mean.shape, device=pictures.device, generator=generator)
    rebuilt = vae.decode(moments.mean + moments.std * noise).sample.float()
    absolute = functional.l1_loss(rebuilt, pictures) + functional.mse_loss(rebuilt, pictures)
    (right, lower), (true_right, true_lower) = edges(rebuilt), edges(pictures)
    sharp = functional.l1_loss(right, true_right) + functional.l1_loss(lower, true_lower)
    divergence = 0.5 * (moments.mean.float() ** 2 + moments.var.float() - 1 - moments.logvar.float()).mean()
    total: Tensor = absolute + sharp + recipe.divergence_weight * divergence
    return total


@dataclass
class AutoencoderTraining:
    """A VAE, and pictures of two sides that lie on the device as bytes."""

    vae: nn.Module
    drawings: Packed
    recipe: AutoencoderRecipe
    device: torch.device
    seed: int

    def run(self, state_file: Path, report: Report, clock: Clock) -> nn.Module:
        """The averaged VAE."""
        pictures = {side: painted(self.drawings, side, self.device) for side in _SIDES}

        def loss_of(step: int, generator: torch.Generator) -> Tensor:
            batch = as_input(self._batch(pictures, step, generator)).contiguous(memory_format=torch.channels_last)
            with half_precision(self.device):
                return loss(self.vae, batch, self.recipe, generator)

        average = averaged(self.vae)
        stage = Stage(
            "autoencoder", self.recipe.steps, self.recipe.peak_learning_rate, self.vae, list(self.vae.parameters()),
            loss_of, state_file, self.seed, average,
        )  # fmt: skip
        stage.run(self.device, report, clock)
        result: nn.Module = average.module
        return result

    def _batch(self, pictures: dict[int, Tensor], step: int, generator: torch.Generator) -> Tensor:
        """By turns: crops of 128² twice, whole pictures of 256², whole pictures of 64²."""
        large, small = (pictures[side] for side in _SIDES)
        turn = step % 4
        count = self.recipe.batch if turn < 2 else self.recipe.batch // 4 if turn == 2 else self.recipe.batch * 2
        source = small if turn == 3 else large
        which = torch.randint(len(source), (max(1, count),), device=self.device, generator=generator)
        chosen = source[which]
        if turn < 2:
            top, left = torch.randint(_SIDES[0] - _CROP + 1, (2,), generator=generator, device=self.device).tolist()
            chosen = chosen[..., top : top + _CROP, left : left + _CROP]
        return chosen
