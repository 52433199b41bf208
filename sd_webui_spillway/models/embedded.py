"""The embedded default model: a real Stable Diffusion architecture in small, made on the spot from a seed.

Recipe 1: about 15 million weights (62 MB in float32), 11 million of them the UNet's. Each of its three levels
has attention and every part that a placement of weights has to deal with: resnets, transformers, down- and upsamplers.
It predicts *v*: a random network that predicts noise would blow up the picture over the steps, one that predicts *v*
turns it and keeps its size.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import torch

from .atomic import whole_folder
from .building import assemble, quiet_libraries
from .clip_tokenizer import CLIP_PAD, published_words, write_tokenizer
from .families import ModelConfig, text_config, unet_config, vae_config
from .ldm_layout import TEXT, State
from .random_weights import random_modules

_log = logging.getLogger(__name__)
RECIPE = 1
"""Part of the folder's name: a change of the recipe makes a new folder, an old one is never mistaken for it."""
NAME = "embedded"
NOTICE = "The embedded model's weights are random: it shows timing and memory, not pictures."
_SEED = 20_240_501
_SIDE_PIXELS = 256


def embedded_config() -> ModelConfig:
    """SD 1's architecture with smaller and fewer layers."""
    text = text_config(width=64, layers=4, inner=256, act="quick_gelu")
    unet = unet_config(
        "sd1", widths=(64, 128, 192), layers=1, depths=(1, 1, 1), mid_depth=1, context=64, linear=False,
        sample_size=_SIDE_PIXELS // 8,
    )  # fmt: skip
    vae = vae_config("sd1", widths=(32, 32, 64, 64), layers=1, sample_size=_SIDE_PIXELS)
    return ModelConfig("sd1", unet, vae, (text,), "v_prediction")


def _make_readable_by_all(folder: Path, text: State) -> None:
    """transformers 5 saves CLIP's names without ``text_model.`` and the tokenizer as one file; transformers 4 reads
    neither, while both read the older form. One cache may serve two installations."""
    from safetensors.torch import save_file

    named = {f"text_model.{name.removeprefix('text_model.')}": tensor for name, tensor in text.items()}
    save_file(named, str(folder / TEXT / "model.safetensors"), metadata={"format": "pt"})
    shutil.rmtree(folder / "tokenizer")
    (folder / "tokenizer").mkdir()
    write_tokenizer(folder / "tokenizer", published_words(CLIP_PAD))


def embedded_folder(cache: Path) -> Path:
    """The model as a diffusers folder inside ``cache``, made the first time (seconds).

    Raises:
        UnavailableError: diffusers, transformers or the tokenizer's vocabulary is not installed.
        StorageError: the cache cannot be written.
    """

    def write(folder: Path) -> None:
        _log.info("making the embedded model in %s", cache)
        config = embedded_config()
        modules = random_modules(config, _SEED, torch.float32)
        pipeline: Any = assemble(config, modules, cache)
        with quiet_libraries():
            pipeline.save_pretrained(str(folder))
        _make_readable_by_all(folder, modules.states()[TEXT])

    return whole_folder(cache / f"{NAME}-{RECIPE}", write)
