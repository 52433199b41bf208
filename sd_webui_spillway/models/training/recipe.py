"""How large the embedded model is and how long it is trained: every number that changes the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..families import ModelConfig, text_config, unet_config, vae_config
from .classifier_training import ClassifierPlan

_TEXT_HEAD_WIDTH = 16


@dataclass(frozen=True)
class AutoencoderRecipe:
    """Pictures are rebuilt from latents eight times as narrow and high."""

    pictures: int
    steps: int
    batch: int
    """Pictures of 128² in a step; of larger ones fewer, of smaller ones more."""
    peak_learning_rate: float = 8e-4
    divergence_weight: float = 1e-4
    """Of the latents' divergence from a standard normal: makes latents smooth, and pictures a little soft."""


@dataclass(frozen=True)
class DenoiserRecipe:
    """UNet and text encoder learn together to tell noise from latents."""

    pictures: dict[int, int]
    """Side in pixels → pictures of that side."""
    shares: dict[int, float]
    """Side in pixels → share of the steps."""
    steps: int
    batch: int
    peak_learning_rate: float = 1e-3
    unconditional_share: float = 0.1
    """How often the caption is left out, for guidance."""
    signal_to_noise_limit: float = 5.0
    """Hang et al., "Efficient Diffusion Training via Min-SNR Weighting Strategy", arXiv 2303.09556."""


@dataclass(frozen=True)
class LoraRecipe:
    """The model learns to paint everything striped, in a few added weights."""

    pictures: int
    steps: int
    batch: int
    rank: int = 4
    peak_learning_rate: float = 2e-3


@dataclass(frozen=True)
class Recipe:
    """Everything a training run depends on, beside the machine."""

    name: Literal["full", "tiny"]
    seed: int
    merges: int
    """Most merges the tokenizer may learn."""
    unet_widths: tuple[int, ...]
    unet_depths: tuple[int, ...]
    vae_widths: tuple[int, ...]
    vae_layers: int
    text_width: int
    text_layers: int
    text_inner: int
    """Width of the text encoder's feed-forward layers."""
    side_pixels: int
    """The side that pictures are made at unless another is asked for."""
    autoencoder: AutoencoderRecipe
    denoiser: DenoiserRecipe
    lora: LoraRecipe
    classifier: ClassifierPlan

    def config(self, vocabulary: int, scaling_factor: float = 0.18215) -> ModelConfig:
        """SD 1's architecture in these sizes. ``scaling_factor`` brings the latents to a deviation of 1."""
        text = text_config(
            width=self.text_width, layers=self.text_layers, inner=self.text_inner, act="quick_gelu",
            vocabulary=vocabulary,
        )  # fmt: skip
        text["num_attention_heads"] = self.text_width // _TEXT_HEAD_WIDTH
        unet = unet_config(
            "sd1", widths=self.unet_widths, layers=1, depths=self.unet_depths, mid_depth=1, context=self.text_width,
            linear=False, sample_size=self.side_pixels // 8,
        )  # fmt: skip
        vae = vae_config("sd1", widths=self.vae_widths, layers=self.vae_layers, sample_size=self.side_pixels)
        return ModelConfig("sd1", unet, vae | {"scaling_factor": scaling_factor}, (text,), "epsilon")


FULL = Recipe(
    name="full", seed=20_261_130, merges=400, unet_widths=(64, 128), unet_depths=(0, 1), vae_widths=(96, 96, 96, 96),
    vae_layers=0, text_width=64, text_layers=3, text_inner=96, side_pixels=256,
    autoencoder=AutoencoderRecipe(pictures=24_000, steps=2_600, batch=64, peak_learning_rate=1e-3),
    denoiser=DenoiserRecipe(
        pictures={256: 100_000, 128: 20_000, 64: 12_000}, shares={256: 0.82, 128: 0.12, 64: 0.06}, steps=2_780,
        batch=256,
    ),
    lora=LoraRecipe(pictures=600, steps=160, batch=24),
    classifier=ClassifierPlan(),
)  # fmt: skip
"""The model in the repository, 6 million weights; its classifier learnt less, 900 steps of 32.

The VAE is of one width, because the original layout's norms have 32 groups: with 64 channels a group is two, and a flat
colour comes out as little more than a sign (measured after 35 s of training: loss 0.169 with widths of 64 and resnets,
0.090 with 96 and none in the encoder's levels)."""

TINY = Recipe(
    name="tiny", seed=1, merges=400, unet_widths=(32, 32), unet_depths=(0, 1), vae_widths=(32, 32, 32, 32),
    vae_layers=0, text_width=32, text_layers=1, text_inner=32, side_pixels=64,
    autoencoder=AutoencoderRecipe(pictures=12, steps=4, batch=4),
    denoiser=DenoiserRecipe(pictures={64: 12}, shares={64: 1.0}, steps=4, batch=4),
    lora=LoraRecipe(pictures=8, steps=2, batch=4),
    classifier=ClassifierPlan(steps=2, batch=4, pool=8, side_pixels=64, width=8, checked=4),
)  # fmt: skip
"""Every step of the same way in seconds on a CPU; nothing useful comes of it."""
RECIPES = {recipe.name: recipe for recipe in (FULL, TINY)}
