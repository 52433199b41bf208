"""A small SD 1 as a diffusers folder, with sizes and a tokenizer of its own, random weights, and a LoRA for it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch

from sd_webui_spillway.models.building import assemble, quiet_libraries
from sd_webui_spillway.models.clip_tokenizer import CLIP_PAD, Words, words_of, write_tokenizer
from sd_webui_spillway.models.families import ModelConfig, text_config, unet_config, vae_config
from sd_webui_spillway.models.lora import LoraTargets
from sd_webui_spillway.models.random_weights import random_modules

TAUGHT = ("red", "blue", "green", "circle", "square", "above", "below", "left")


def small_words() -> Words:
    """Bytes, and the words that joining their letters one after another makes."""
    merges: list[str] = []
    for word in TAUGHT:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merges.append(f"{parts[0]} {parts[1]}")
            parts[:2] = [parts[0] + parts[1]]
    return words_of(list(dict.fromkeys(merges)), CLIP_PAD)


def small_config(*, prediction: str = "epsilon", vae_layers: int = 1, heads: int = 8) -> ModelConfig:
    words = len(small_words().vocabulary)
    text = text_config(width=96, layers=2, inner=192, act="quick_gelu", vocabulary=words)
    text["num_attention_heads"] = 4
    unet = unet_config(
        "sd1", widths=(64, 128), layers=1, depths=(0, 1), mid_depth=1, context=96, linear=False, sample_size=16,
        heads=[heads, heads],
    )  # fmt: skip
    vae = vae_config("sd1", widths=(64, 64, 64, 64), layers=vae_layers, sample_size=128)
    return ModelConfig("sd1", unet, vae | {"scaling_factor": 0.25}, (text,), prediction)


def small_folder(folder: Path, *, dtype: torch.dtype = torch.float32, seed: int = 7, **sizes) -> Path:
    config = small_config(**sizes)
    words = folder.parent / f"{folder.name}-words"
    words.mkdir(parents=True)
    write_tokenizer(words, small_words())
    with quiet_libraries():
        assemble(config, random_modules(config, seed, dtype), folder.parent, words).save_pretrained(str(folder))
    return folder


def random_lora(config: ModelConfig, *, rank: int = 4, text: bool = False, seed: int = 9) -> dict[str, torch.Tensor]:
    """peft's state dict of a LoRA on every layer of the transformers and the convolutions around and between them."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in LoraTargets.of(config).weights.items():
        attended = re.search(r"attn[12]\.to_|proj|ff\.net|\.conv[12]$", name) if name.startswith("unet.") else text
        if attended:
            inputs = (rank, *shape[1:])
            outputs = (shape[0], rank, *(1 for _ in shape[2:]))
            state[f"{name}.lora_A.weight"] = torch.randn(inputs, generator=generator) / math.prod(inputs[1:]) ** 0.5
            state[f"{name}.lora_B.weight"] = torch.randn(outputs, generator=generator) / rank
    return state
