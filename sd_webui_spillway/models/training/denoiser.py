"""Training UNet and text encoder together: which noise was added to these latents, given this caption?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .latents import LatentBank
from .loop import Clock, Report, Stage, averaged, half_precision
from .recipe import DenoiserRecipe

TIMESTEPS = 1000


def signal_shares(device: torch.device) -> Tensor:
    """ᾱ for every timestep [1000] of Stable Diffusion's scaled linear schedule: 0.00085 to 0.012."""
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, TIMESTEPS, dtype=torch.float64, device=device) ** 2
    return torch.cumprod(1 - betas, 0).float()


class Denoiser(nn.Module):
    """UNet and text encoder as one module, so that one optimiser and one average hold both."""

    def __init__(self, unet: nn.Module, text_encoder: nn.Module) -> None:
        super().__init__()
        self.unet, self.text_encoder = unet, text_encoder

    def forward(self, noisy: Tensor, timesteps: Tensor, tokens: Tensor) -> Tensor:
        """The noise in ``noisy`` [n, 4, h, w] at ``timesteps`` [n], told ``tokens`` [n, 77]."""
        text = self.text_encoder(tokens)[0]
        noise: Tensor = self.unet(noisy, timesteps, text, return_dict=False)[0]
        return noise


@dataclass(frozen=True)
class NoiseLoss:
    """The loss of one batch; ``scaling_factor`` brings latents to a deviation of 1."""

    shares: Tensor
    scaling_factor: float
    signal_to_noise_limit: float

    def __call__(
        self, predict: Callable[[Tensor, Tensor, Tensor], Tensor], latents: Tensor, tokens: Tensor,
        generator: torch.Generator,
    ) -> Tensor:  # fmt: skip
        count, device = len(latents), latents.device
        timesteps = torch.randint(TIMESTEPS, (count,), device=device, generator=generator)
        noise = torch.randn(latents.shape, device=device, generator=generator)
        share = self.shares[timesteps]
        signal, rest = share.sqrt()[:, None, None, None], (1 - share).sqrt()[:, None, None, None]
        told = predict(latents * self.scaling_factor * signal + noise * rest, timesteps, tokens)
        ratio = share / (1 - share)
        weight = ratio.clamp(max=self.signal_to_noise_limit) / ratio
        return ((told.float() - noise) ** 2).mean(dim=(1, 2, 3)).mul(weight).mean()


@dataclass
class DenoiserTraining:
    """The two networks, the latents of each side, and the token numbers of no caption at all [77]."""

    model: Denoiser
    banks: Mapping[int, LatentBank]
    silence: Tensor
    scaling_factor: float
    recipe: DenoiserRecipe
    device: torch.device
    seed: int
    compiled: bool = False
    """Whether torch compiles the networks for the most frequent side: faster, where its compiler is installed."""

    def run(self, state_file: Path, report: Report, clock: Clock, sample: Callable[[Denoiser, int], None]) -> Denoiser:
        """The averaged networks. ``sample(averaged networks, steps done)`` is called now and then."""
        recipe, device = self.recipe, self.device
        loss = NoiseLoss(signal_shares(device), self.scaling_factor, recipe.signal_to_noise_limit)
        sides = tuple(recipe.shares)
        weights = torch.tensor([recipe.shares[side] for side in sides], device=device)
        main_side = max(sides, key=recipe.shares.__getitem__)
        compiled: Any = torch.compile(self.model, dynamic=False) if self.compiled else self.model

        def loss_of(_step: int, generator: torch.Generator) -> Tensor:
            side = sides[int(torch.multinomial(weights, 1, generator=generator))]
            latents, tokens = self.banks[side].batch(recipe.batch, generator)
            silent = torch.rand(len(tokens), device=device, generator=generator) < recipe.unconditional_share
            tokens = torch.where(silent[:, None], self.silence, tokens)
            with half_precision(device):
                return loss(compiled if side == main_side else self.model, latents, tokens, generator)

        average = averaged(self.model)
        result: Any = average.module
        stage = Stage(
            "denoiser", recipe.steps, recipe.peak_learning_rate, self.model, list(self.model.parameters()), loss_of,
            state_file, self.seed, average, lambda done: sample(result, done),
        )  # fmt: skip
        stage.run(device, report, clock)
        trained: Denoiser = result
        return trained
