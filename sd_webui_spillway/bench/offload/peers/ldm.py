"""UNets in the original layout, as other tools' own sources have them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ....errors import UnavailableError
from ....models.families import TIME_IDS, published
from ..models import Inputs, ModelSpec

_FAMILIES: dict[str, Literal["sd1", "sdxl"]] = {"sdxl": "sdxl", "sd15": "sd1", "tiny": "sd1"}
_ATTENDS = "CrossAttnDownBlock2D"


def adapted(spec: ModelSpec, tool: str, build: Callable[[dict[str, Any]], nn.Module]) -> ModelSpec:
    """The same model and work with a tool's own UNet, which ``build`` makes of a diffusers configuration.

    Raises:
        UnavailableError: the tool has no such model.
    """
    if spec.name not in _FAMILIES:
        raise UnavailableError(f"{tool} has no model like {spec.title}.")
    config = published(_FAMILIES[spec.name], "tiny" if spec.rehearsal else "real").unet
    return replace(spec, build=lambda: build(config), inputs=lambda: _inputs(spec.inputs(), config))


def lacking(folder: Path, parts: Sequence[str], libraries: Sequence[str]) -> str | None:
    """The first of a tool's files or libraries that is not there, in words."""
    missing = next((part for part in parts if not (folder / part).is_file()), None)
    if missing:
        return f"the folder has no {missing}"
    library = next((name for name in libraries if importlib.util.find_spec(name) is None), None)
    return f"its code needs {library}, which is not installed" if library else None


def arguments(config: dict[str, Any]) -> dict[str, Any]:
    """What every ``UNetModel`` of the original layout is told, of a diffusers configuration."""
    widths = config["block_out_channels"]
    found: dict[str, Any] = {
        "in_channels": config["in_channels"],
        "out_channels": config["out_channels"],
        "model_channels": widths[0],
        "channel_mult": [width // widths[0] for width in widths],
        "num_res_blocks": config["layers_per_block"],
        "context_dim": config["cross_attention_dim"],
        "use_linear_in_transformer": config["use_linear_projection"],
        "use_spatial_transformer": True,
    }
    if config["use_linear_projection"]:
        found["num_head_channels"] = 64
    else:
        found["num_heads"] = config["attention_head_dim"][0]
    if "addition_embed_type" in config:
        found |= {"num_classes": "sequential", "adm_in_channels": config["projection_class_embeddings_input_dim"]}
    return found


def attention_resolutions(config: dict[str, Any]) -> list[int]:
    """Where there is attention, as how many times smaller than the picture's latent values a level is."""
    return [2**level for level, kind in enumerate(config["down_block_types"]) if kind == _ATTENDS]


def depths(config: dict[str, Any]) -> dict[str, Any]:
    """How many transformer layers each block has, 0 for none, as ComfyUI and what descends from it are told."""
    levels = [
        depth if kind == _ATTENDS else 0
        for depth, kind in zip(config["transformer_layers_per_block"], config["down_block_types"], strict=True)
    ]
    blocks = config["layers_per_block"]
    return {
        "transformer_depth": [depth for depth in levels for _ in range(blocks)],
        "transformer_depth_middle": config["transformer_layers_per_block"][-1],
        "transformer_depth_output": [depth for depth in levels for _ in range(blocks + 1)],
    }


def _inputs(inputs: Inputs, config: dict[str, Any]) -> Inputs:
    """The same work for the original layout: sizes are embedded before the UNet there, so a vector comes ready."""
    sample: torch.Tensor = inputs["sample"]
    found: Inputs = {
        "x": sample,
        "timesteps": inputs["timestep"].expand(sample.shape[0]),
        "context": inputs["encoder_hidden_states"],
    }
    if "added_cond_kwargs" in inputs:
        text = inputs["added_cond_kwargs"]["text_embeds"]
        sizes = torch.zeros(sample.shape[0], TIME_IDS * config["addition_time_embed_dim"], dtype=text.dtype)
        found["y"] = torch.cat([text, sizes], dim=1)
    return found
