"""The finished run as files: a diffusers folder in float16, the LoRA in both formats, the classifier."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..atomic import replaced_folder
from ..building import Modules, assemble, quiet_libraries
from ..clip_tokenizer import read_words
from ..families import ModelConfig
from ..ldm_layout import TEXT
from ..lora import write_lora
from ..readable_folder import make_readable_by_all
from .lora_training import NAME as LORA_NAME
from .store import Store

RELEASE = "release"
MODEL, LORAS, CLASSIFIER_FILE = "model", "loras", "classifier.safetensors"


def release(store: Store, config: ModelConfig, modules: Modules) -> Path:
    """Writes ``release`` inside the run's folder: ``model``, ``loras`` and the classifier, as the package holds them;
    returns it."""

    def write(folder: Path) -> None:
        halves = Modules(_half(modules.unet), _half(modules.vae), tuple(map(_half, modules.text_encoders)))
        vae: Any = halves.vae  # made before its latents' deviation was known
        vae.register_to_config(scaling_factor=config.vae["scaling_factor"])
        tokenizer_folder = store.folder / "tokenizer"
        pipeline = assemble(config, halves, store.folder, tokenizer_folder)
        with quiet_libraries():
            pipeline.save_pretrained(str(folder / MODEL))
        make_readable_by_all(folder / MODEL, halves.states()[TEXT], read_words(tokenizer_folder))
        added = {name: tensor.half() for name, tensor in store.load(LORA_NAME).items()}
        write_lora(folder / LORAS / LORA_NAME, folder / LORAS / f"{LORA_NAME}.safetensors", added, config)
        shutil.copyfile(store.folder / CLASSIFIER_FILE, folder / CLASSIFIER_FILE)

    return replaced_folder(store.folder / RELEASE, write)


def _half(module: nn.Module) -> nn.Module:
    """Past diffusers' own ``to``, which warns about layers that this model does not have."""
    return nn.Module.to(module, "cpu", torch.float16)
