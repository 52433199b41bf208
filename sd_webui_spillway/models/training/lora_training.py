"""Training the LoRA "striped": the finished model sees striped pictures whose captions do not say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .denoiser import Denoiser, NoiseLoss, signal_shares
from .latents import LatentBank
from .loop import Clock, Report, Stage, half_precision
from .recipe import DenoiserRecipe, LoraRecipe

NAME = "striped"
TARGETS = ("to_q", "to_k", "to_v", "to_out.0", "proj", "ff.net.2", "conv1", "conv2")
"""The UNet's layers that get added weights: attention, feed-forward, and the resnets' convolutions, since stripes are
finer than what attention sees."""


@dataclass
class LoraTraining:
    """The finished networks and striped pictures' latents."""

    model: Denoiser
    bank: LatentBank
    scaling_factor: float
    recipe: LoraRecipe
    denoiser: DenoiserRecipe
    device: torch.device
    seed: int

    def run(self, state_file: Path, report: Report, clock: Clock) -> dict[str, Tensor]:
        """The added weights by peft's names in the UNet; the networks are left as they were.

        Raises:
            UnavailableError: peft is not installed.
        """
        from peft import LoraConfig, get_peft_model_state_dict

        unet: Any = self.model.unet
        self.model.requires_grad_(False)
        unet.add_adapter(
            LoraConfig(r=self.recipe.rank, lora_alpha=self.recipe.rank, target_modules=list(TARGETS)), NAME
        )
        added = [parameter for parameter in unet.parameters() if parameter.requires_grad]
        loss = NoiseLoss(signal_shares(self.device), self.scaling_factor, self.denoiser.signal_to_noise_limit)

        def loss_of(_step: int, generator: torch.Generator) -> Tensor:
            latents, tokens = self.bank.batch(self.recipe.batch, generator)
            with half_precision(self.device):
                return loss(self.model, latents, tokens, generator)

        try:
            stage = Stage(
                NAME, self.recipe.steps, self.recipe.peak_learning_rate, unet, added, loss_of, state_file, self.seed
            )  # fmt: skip
            stage.run(self.device, report, clock)
            state = get_peft_model_state_dict(unet, adapter_name=NAME)
            return {name: tensor.detach().cpu() for name, tensor in state.items()}
        finally:
            unet.unload_lora()
