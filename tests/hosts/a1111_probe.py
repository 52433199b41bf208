"""Runs inside AUTOMATIC1111, as the script of an extension: its networks' outputs for given inputs, over HTTP."""

from __future__ import annotations

import torch
from modules import devices, script_callbacks, shared
from safetensors.torch import load_file, save_file


def outputs(inputs: dict[str, torch.Tensor], prompt: str) -> dict[str, torch.Tensor]:
    """Of the loaded model, LoRAs in it included, as far as the host has put them into its weights."""
    model = shared.sd_model
    with torch.no_grad(), devices.without_autocast():
        return {
            "unet": model.model.diffusion_model(inputs["sample"], inputs["timestep"], context=inputs["context"]),
            "decoded": model.first_stage_model.decode(inputs["latents"]),
            "encoded": model.first_stage_model.encode(inputs["picture"]).mode(),
            "text": model.get_learned_conditioning([prompt]),
        }


def add_routes(_blocks, app) -> None:
    @app.post("/probe")
    def probe(order: dict) -> dict:
        found = outputs(load_file(order["inputs"]), order["prompt"])
        weights = {f"weight.{name}": weight for name, weight in shared.sd_model.model.state_dict().items()}
        found |= {name: weight for name, weight in weights.items() if name.endswith(".weight")}
        save_file({name: tensor.float().contiguous().clone() for name, tensor in found.items()}, order["outputs"])
        return {"attention": shared.opts.cross_attention_optimization, "model": shared.sd_model.sd_checkpoint_info.name}


script_callbacks.on_app_started(add_routes)
