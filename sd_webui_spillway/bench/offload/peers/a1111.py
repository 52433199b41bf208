"""AUTOMATIC1111's own offloading, from a folder of its sources, around the UNet that it ships."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import torch
from torch import nn

from ....errors import UnavailableError
from ....models.families import TIME_IDS, published
from ..machine import Machine
from ..models import Inputs, ModelSpec
from .base import Peer, Step, Work, plain_step

_FAMILIES: dict[str, Literal["sd1", "sdxl"]] = {"sdxl": "sdxl", "sd15": "sd1", "tiny": "sd1"}
_SGM = "repositories/generative-models"


class A1111(Peer):
    """``modules/lowvram.py`` as it stands, given a model of the shape it expects whose UNet is the one of
    ``sgm``. What it reads of the rest of the program is its device; that is all it is given."""

    def __init__(self, folder: Path, mode: Literal["lowvram", "medvram"]) -> None:
        self.name = f"a1111-{mode}"
        self.summary = f"AUTOMATIC1111's own {mode}"
        self.holds_all = mode == "medvram"
        self.guessed_bytes_per_second = 3.3e9
        self._folder, self._mode = folder, mode

    def unavailable_because(self, machine: Machine) -> str | None:
        for part in ("modules/lowvram.py", f"{_SGM}/sgm/modules/diffusionmodules/openaimodel.py"):
            if not (self._folder / part).is_file():
                return f"the folder has no {part}"
        for library in ("einops", "omegaconf"):
            if importlib.util.find_spec(library) is None:
                return f"its UNet needs {library}, which is not installed"
        return super().unavailable_because(machine)

    def adapted(self, spec: ModelSpec) -> ModelSpec:
        if spec.name not in _FAMILIES:
            raise UnavailableError(f"AUTOMATIC1111 has no model like {spec.title}.")
        family = _FAMILIES[spec.name]
        config = published(family, "tiny" if spec.rehearsal else "real").unet
        return replace(spec, build=lambda: self._unet(config), inputs=lambda: _as_ldm(spec.inputs(), config))

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        lowvram = self._lowvram(work.machine.device)
        unet = work.new_module()
        model = _Model(unet)
        lowvram.setup_for_low_vram(model, self._mode == "medvram")
        return plain_step(model.model, work)

    def _lowvram(self, device: torch.device) -> Any:
        """Its ``lowvram`` module, with stand-ins for the two that it imports."""
        package = ModuleType("modules")
        package.__path__ = []
        for name, part in (("devices", SimpleNamespace(device=device)), ("shared", SimpleNamespace())):
            setattr(package, name, part)
        sys.modules["modules"] = package
        spec = importlib.util.spec_from_file_location("modules.lowvram", self._folder / "modules" / "lowvram.py")
        if spec is None or spec.loader is None:
            raise UnavailableError("AUTOMATIC1111's lowvram module cannot be read.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def _unet(self, config: dict[str, Any]) -> nn.Module:
        """Its UNet, whose packages are entered without their ``__init__``: these import a whole training framework."""
        root = self._folder / _SGM / "sgm"
        for name in ("sgm", "sgm.modules", "sgm.modules.diffusionmodules"):
            if name not in sys.modules:
                package = ModuleType(name)
                package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
                sys.modules[name] = package
        source: Any = importlib.import_module("sgm.modules.diffusionmodules.openaimodel")
        unet: nn.Module = source.UNetModel(**ldm_arguments(config))
        return unet


class _Model(nn.Module):
    """As much of ``LatentDiffusion`` as ``setup_for_low_vram`` touches."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.model = _Wrapper(unet)
        self.first_stage_model = _FirstStage()
        self.conditioner = nn.Identity()


class _Wrapper(nn.Module):
    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.diffusion_model = unet

    def forward(self, **inputs: Any) -> Any:
        return self.diffusion_model(**inputs)


class _FirstStage(nn.Module):
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return z


def ldm_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """A diffusers configuration in the words of the original layout's ``UNetModel``."""
    widths = config["block_out_channels"]
    levels = [2**level for level, kind in enumerate(config["down_block_types"]) if kind == "CrossAttnDownBlock2D"]
    depths = list(config["transformer_layers_per_block"])
    arguments: dict[str, Any] = {
        "in_channels": config["in_channels"],
        "out_channels": config["out_channels"],
        "model_channels": widths[0],
        "channel_mult": [width // widths[0] for width in widths],
        "num_res_blocks": config["layers_per_block"],
        "attention_resolutions": levels,
        "context_dim": config["cross_attention_dim"],
        "transformer_depth": depths,
        "transformer_depth_middle": depths[-1],
        "use_linear_in_transformer": config["use_linear_projection"],
        "use_spatial_transformer": True,
        "use_checkpoint": False,
        "legacy": False,
        "spatial_transformer_attn_type": "softmax",
    }
    if config["use_linear_projection"]:
        arguments["num_head_channels"] = 64
    else:
        arguments["num_heads"] = config["attention_head_dim"][0]
    if "addition_embed_type" in config:
        arguments |= {"num_classes": "sequential", "adm_in_channels": config["projection_class_embeddings_input_dim"]}
    return arguments


def _as_ldm(inputs: Inputs, config: dict[str, Any]) -> Inputs:
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
