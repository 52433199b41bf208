"""What the model draws while it is being trained: one sheet, the same captions and noise every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ..atomic import whole_file
from .denoiser import Denoiser
from .loop import half_precision
from .recipe import Recipe
from .tokenizer import token_ids

CAPTIONS = (
    "a red circle on a white background", "three blue stars on a yellow background",
    "a green triangle left of a purple square on a grey background", "five orange hearts on a black background",
    "two dotted pink rings on a green background", "a big black cross on a pink background",
    "a red house and a tree on green grass under a yellow sun", "a yellow boat on the sea at night under a white moon",
)  # fmt: skip
_STEPS = 20
_GUIDANCE = 5.0


def _scheduler() -> Any:
    from diffusers import DDIMScheduler

    return DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False,
        steps_offset=1,
    )  # fmt: skip


@torch.no_grad()
def draw(model: Denoiser, vae: Any, tokenizer: Any, scaling_factor: float, side_pixels: int, device: torch.device,
         captions: tuple[str, ...] = CAPTIONS) -> Tensor:  # fmt: skip
    """Pictures [captions, 3, side, side] from 0 to 1."""
    scheduler = _scheduler()
    scheduler.set_timesteps(_STEPS, device=device)
    tokens = token_ids(tokenizer, [""] * len(captions) + list(captions)).long().to(device)
    shape = (len(captions), 4, side_pixels // 8, side_pixels // 8)
    latents = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    with half_precision(device):
        for timestep in scheduler.timesteps:
            times = timestep.expand(len(tokens))
            silent, told = model(torch.cat([latents, latents]), times, tokens).float().chunk(2)
            latents = scheduler.step(silent + _GUIDANCE * (told - silent), timestep, latents).prev_sample
        pictures: Tensor = vae.decode(latents / scaling_factor).sample.float()
    return (pictures / 2 + 0.5).clamp(0, 1)


def write_samples(
    model: Denoiser, vae: Any, tokenizer: Any, scaling_factor: float, recipe: Recipe, device: torch.device, path: Path
) -> None:
    """One row of pictures for each side the model is trained at, the largest first."""
    rows = []
    widest = max(recipe.denoiser.shares)
    was_training = model.training
    model.eval()
    for side in sorted(recipe.denoiser.shares, reverse=True):
        pictures = (draw(model, vae, tokenizer, scaling_factor, side, device) * 255).round().to(torch.uint8)
        row = torch.full((3, side, widest * len(CAPTIONS)), 255, dtype=torch.uint8)
        for index, picture in enumerate(pictures.cpu()):
            row[:, :, index * widest : index * widest + side] = picture
        rows.append(row)
    model.train(was_training)
    with whole_file(path) as temporary:
        Image.fromarray(torch.cat(rows, 1).permute(1, 2, 0).numpy()).save(temporary, "PNG")
