"""AUTOMATIC1111's own offloading, from a folder of its sources, around the UNet that it ships."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import torch
from torch import nn

from ....errors import UnavailableError
from ..machine import Machine
from ..models import ModelSpec
from . import ldm
from .base import Peer, Step, Work, plain_step

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
        lacks = ldm.lacking(
            self._folder, ("modules/lowvram.py", f"{_SGM}/sgm/modules/diffusionmodules/openaimodel.py"),
            ("einops", "omegaconf"),
        )
        return lacks or super().unavailable_because(machine)

    def adapted(self, spec: ModelSpec) -> ModelSpec:
        return ldm.adapted(spec, "AUTOMATIC1111", self._unet)

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
        depths = list(config["transformer_layers_per_block"])
        unet: nn.Module = source.UNetModel(
            **ldm.arguments(config),
            attention_resolutions=ldm.attention_resolutions(config),
            transformer_depth=depths,
            transformer_depth_middle=depths[-1],
            use_checkpoint=False,
            legacy=False,
            spatial_transformer_attn_type="softmax",
        )
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
