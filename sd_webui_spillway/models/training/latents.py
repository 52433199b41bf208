"""What the denoiser learns from: pictures as latents and captions as token numbers, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .autoencoder import PAINTED_AT_ONCE, as_input, painted
from .loop import half_precision
from .picture_bank import CAPTIONS_EACH, Bank
from .tokenizer import token_ids

_ENCODED_AT_ONCE = 256


@dataclass(frozen=True)
class LatentBank:
    """Latents [n, 4, side/8, side/8] in half precision, not yet scaled, and token numbers [n, captions, 77]."""

    latents: Tensor
    tokens: Tensor

    def __len__(self) -> int:
        return len(self.latents)

    def batch(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``count`` random pictures' latents [count, 4, h, w] in float32 and token numbers [count, 77]."""
        device = self.latents.device
        which = torch.randint(len(self), (count,), device=device, generator=generator)
        spoken = torch.randint(CAPTIONS_EACH, (count,), device=device, generator=generator)
        return self.latents[which].float(), self.tokens[which, spoken].long()


@torch.no_grad()
def encode(vae: Any, bank: Bank, tokenizer: Any, side_pixels: int, device: torch.device, advance: Any) -> LatentBank:
    """Paints and encodes a bank. ``advance(done, total)`` is called as it goes."""
    latents = []
    for start in range(0, len(bank.drawings), PAINTED_AT_ONCE):
        pictures = painted(bank.drawings.of(slice(start, start + PAINTED_AT_ONCE)), side_pixels, device)
        for some in pictures.split(_ENCODED_AT_ONCE):
            with half_precision(device):
                latents.append(vae.encode(as_input(some)).latent_dist.mean.half())
        advance(min(start + PAINTED_AT_ONCE, len(bank.drawings)), len(bank.drawings))
    words = [text for texts in bank.captions for text in texts]
    tokens = token_ids(tokenizer, words).reshape(len(bank.captions), CAPTIONS_EACH, -1)
    return LatentBank(torch.cat(latents), tokens.to(device))
