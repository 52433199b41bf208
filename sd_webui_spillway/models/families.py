"""The three families of models that load here, as the configurations their modules are built from.

The numbers are those of the published models: v1-inference.yaml, v2-inference-v.yaml and sd_xl_base.yaml in
the original layout, and the ``config.json`` files of the same models in diffusers' layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Family = Literal["sd1", "sd2", "sdxl"]
FAMILIES: tuple[Family, ...] = ("sd1", "sd2", "sdxl")
SD1_HEADS = 8
HEAD_WIDTH = 64
"""SD 2, SDXL and every CLIP text encoder have heads of this width."""
TIME_IDS = 6
"""SDXL: original size, crop and target size, two numbers each, appended to the pooled text."""
VOCABULARY = 49408
TOKENS = 77


@dataclass(frozen=True)
class ModelConfig:
    """What the modules of one model are built from: keyword arguments of the diffusers and transformers classes."""

    family: Family
    unet: dict[str, Any]
    vae: dict[str, Any]
    text_encoders: tuple[dict[str, Any], ...]
    prediction_type: str
    """``"epsilon"`` or ``"v_prediction"``."""

    @property
    def default_size(self) -> tuple[int, int]:
        """Width and height in pixels that the model was made for."""
        side = int(self.unet["sample_size"]) * 2 ** (len(self.vae["block_out_channels"]) - 1)
        return side, side


def head_count(width: int) -> int:
    """Heads of about 64 in a layer of this width: ``width // 64``, at least one, and a divisor of the width.

    Published models have multiples of 64, where this is exact; only reduced models meet the rest of the rule.
    """
    return next(heads for heads in range(max(1, width // HEAD_WIDTH), 0, -1) if width % heads == 0)


def unet_config(
    family: Family, *, widths: Sequence[int], layers: int, depths: Sequence[int], mid_depth: int, context: int,
    linear: bool, in_channels: int = 4, out_channels: int = 4, sample_size: int = 64, vector: int | None = None,
    pooled: int | None = None, heads: Sequence[int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of ``UNet2DConditionModel``.

    ``widths`` and ``depths`` go level by level from the largest picture down; a depth is the number of transformer
    blocks behind each resnet, 0 for none. ``vector`` is the width of SDXL's extra input, ``pooled`` that of the
    pooled text in it. ``heads`` of attention, level by level, are the family's where none are given.
    """
    config: dict[str, Any] = {
        "sample_size": sample_size,
        "in_channels": in_channels,
        "out_channels": out_channels,
        "block_out_channels": list(widths),
        "layers_per_block": layers,
        "down_block_types": ["CrossAttnDownBlock2D" if depth else "DownBlock2D" for depth in depths],
        "up_block_types": ["CrossAttnUpBlock2D" if depth else "UpBlock2D" for depth in reversed(depths)],
        # A level without attention ignores its entry, but the last one is also the middle block's.
        "transformer_layers_per_block": [*(depth or 1 for depth in depths[:-1]), mid_depth],
        "cross_attention_dim": context,
        # diffusers means the number of heads by this name (its issue 2011).
        "attention_head_dim": list(heads or (SD1_HEADS if family == "sd1" else head_count(width) for width in widths)),
        "use_linear_projection": linear,
    }
    if vector is not None and pooled is not None:
        config |= {
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": (vector - pooled) // TIME_IDS,
            "projection_class_embeddings_input_dim": vector,
        }
    return config


def vae_config(
    family: Family, *, widths: Sequence[int], layers: int = 2, latent: int = 4, sample_size: int
) -> dict[str, Any]:
    """Arguments of ``AutoencoderKL``. SDXL's published decoder overflows in float16, hence its ``force_upcast``."""
    return {
        "in_channels": 3,
        "out_channels": 3,
        "latent_channels": latent,
        "block_out_channels": list(widths),
        "layers_per_block": layers,
        "down_block_types": ["DownEncoderBlock2D"] * len(widths),
        "up_block_types": ["UpDecoderBlock2D"] * len(widths),
        "sample_size": sample_size,
        "scaling_factor": 0.13025 if family == "sdxl" else 0.18215,
        "force_upcast": family == "sdxl",
    }


def text_config(
    *, width: int, layers: int, inner: int, act: str, projection: int | None = None, vocabulary: int = VOCABULARY,
    tokens: int = TOKENS,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of ``CLIPTextConfig``; ``projection`` makes it the class with a projected pooled output."""
    return {
        "vocab_size": vocabulary,
        "max_position_embeddings": tokens,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": head_count(width),
        "hidden_act": act,
        "projection_dim": projection or width,
        "with_projection": projection is not None,
        "bos_token_id": vocabulary - 2,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": 1,
    }


def scheduler_arguments(config: ModelConfig) -> dict[str, Any]:
    """The noise schedule all three families were trained with, for any diffusers scheduler that takes it."""
    return {
        "num_train_timesteps": 1000,
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "steps_offset": 1,
        "timestep_spacing": "leading",
        "prediction_type": config.prediction_type,
    }


def published(family: Family, size: Literal["tiny", "real"]) -> ModelConfig:
    """The family's published sizes, or the same architecture reduced until it runs in a moment.

    Reduced widths of SD 2 and SDXL are multiples of 64, because the original layout's code divides by it.
    """
    real = size == "real"
    vae_widths = (128, 256, 512, 512) if real else (32, 32, 32, 32)
    vae_layers = 2 if real else 1
    text: tuple[dict[str, Any], ...]
    if family == "sd1":
        text = (text_config(width=768, layers=12, inner=3072, act="quick_gelu") if real else
                text_config(width=64, layers=2, inner=128, act="quick_gelu"),)  # fmt: skip
        unet = unet_config(
            family, widths=(320, 640, 1280, 1280) if real else (32, 64, 64, 64), layers=2 if real else 1,
            depths=(1, 1, 1, 0), mid_depth=1, context=text[0]["hidden_size"], linear=False, sample_size=64,
        )  # fmt: skip
    elif family == "sd2":
        text = (text_config(width=1024, layers=23, inner=4096, act="gelu") if real else
                text_config(width=64, layers=2, inner=128, act="gelu"),)  # fmt: skip
        unet = unet_config(
            family, widths=(320, 640, 1280, 1280) if real else (64, 64, 128, 128), layers=2 if real else 1,
            depths=(1, 1, 1, 0), mid_depth=1, context=text[0]["hidden_size"], linear=True, sample_size=96,
        )  # fmt: skip
    else:
        text = (
            text_config(width=768 if real else 64, layers=12 if real else 2, inner=3072 if real else 128,
                        act="quick_gelu"),
            text_config(width=1280 if real else 128, layers=32 if real else 2, inner=5120 if real else 256,
                        act="gelu", projection=1280 if real else 128),
        )  # fmt: skip
        pooled = text[1]["projection_dim"]
        unet = unet_config(
            family, widths=(320, 640, 1280) if real else (64, 64, 128), layers=2 if real else 1,
            depths=(0, 2, 10) if real else (0, 1, 2), mid_depth=10 if real else 2,
            context=sum(encoder["hidden_size"] for encoder in text), linear=True, sample_size=128,
            vector=pooled + 256 * TIME_IDS, pooled=pooled,
        )  # fmt: skip
    vae = vae_config(family, widths=vae_widths, layers=vae_layers, sample_size=unet["sample_size"] * 8)
    return ModelConfig(family, unet, vae, text, "v_prediction" if family == "sd2" else "epsilon")
