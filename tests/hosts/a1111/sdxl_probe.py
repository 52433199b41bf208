"""Runs inside AUTOMATIC1111, as the script of an extension: makes a tiny SDXL checkpoint with random weights, and keeps
the host's own random numbers where each request begins, for a plain img2img draws from them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import open_clip
import torch
from modules import script_callbacks, scripts, sd_disable_initialization, sd_models
from omegaconf import OmegaConf
from safetensors.torch import save_file

TOWER = {
    "embed_dim": 32, "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}  # fmt: skip
_config = Path(tempfile.mkdtemp()) / "spillway-tiny-tower.json"
_config.write_text(json.dumps(TOWER))
open_clip.add_model_config(_config)


def add_routes(_blocks, app) -> None:
    @app.post("/make-sdxl")
    def make(order: dict) -> dict:
        with sd_disable_initialization.DisableInitialization(disable_clip=True):  # it would fetch the encoder's weights
            model = sd_models.instantiate_from_config(OmegaConf.load(order["yaml"]).model)
        generator = torch.Generator().manual_seed(7)
        for name, weight in model.named_parameters():
            spread = 0.5 * weight[0].numel() ** -0.5 if weight.dim() > 1 else 0.02
            middle = 1.0 if weight.dim() == 1 and name.endswith("weight") else 0.0
            weight.data = torch.randn(weight.shape, generator=generator) * spread + middle
        state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("denoiser.")}
        save_file({name: tensor.contiguous().clone() for name, tensor in state.items()}, order["checkpoint"])
        return {"tensors": len(state)}


script_callbacks.on_app_started(add_routes)


class SameStart(scripts.Script):
    def title(self) -> str:
        return "Same start"

    def show(self, is_img2img: bool) -> object:
        return scripts.AlwaysVisible

    def before_process(self, p, *args) -> None:
        torch.manual_seed(11)
