"""ComfyUI's own offloading, from a folder of its sources, around the UNet that it ships."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..machine import Machine
from ..models import ModelSpec
from . import ldm
from .base import Peer, Step, Work, plain_step
from .foreign import sources

_PARTS = ("comfy/model_management.py", "comfy/model_patcher.py", "comfy/ldm/modules/diffusionmodules/openaimodel.py")


class ComfyPartial(Peer):
    """``LoadedModel.model_load`` with the bytes that it works out itself from what is free, everything else as it
    chooses: pinned memory and, on NVIDIA's cards, two streams. Its other way, DynamicVRAM, takes what is free on the
    card and cannot be told a budget."""

    name = "comfy-partial"
    summary = "ComfyUI's own partial load, pinned, two streams"
    budgeted = True
    guessed_bytes_per_second = 20e9

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: tuple[Any, ...] = ()

    def unavailable_because(self, machine: Machine) -> str | None:
        libraries = ("einops", "comfy_aimdo", "comfy_kitchen", "psutil")
        return ldm.lacking(self._folder, _PARTS, libraries) or super().unavailable_because(machine)

    def prepare(self, machine: Machine) -> None:
        with sources(self._folder, ["--cpu"] if machine.simulated else []):
            importlib.import_module("comfy.options").enable_args_parsing()
            self._memory: Any = importlib.import_module("comfy.model_management")
            self._patcher: Any = importlib.import_module("comfy.model_patcher")
            self._unet_source: Any = importlib.import_module("comfy.ldm.modules.diffusionmodules.openaimodel")
            self._operations: Any = importlib.import_module("comfy.ops").disable_weight_init

    def adapted(self, spec: ModelSpec) -> ModelSpec:
        return ldm.adapted(spec, "ComfyUI", self._unet)

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        unet = work.new_module()
        patcher = self._patcher.ModelPatcher(unet, work.machine.device, torch.device("cpu"))
        loaded = self._memory.LoadedModel(patcher)
        loaded.model_load(0 if budget_bytes is None else budget_bytes)
        self._loaded = (patcher, loaded)  # it keeps only weak references itself
        return plain_step(unet, work)

    def _unet(self, config: dict[str, Any]) -> nn.Module:
        unet: nn.Module = self._unet_source.UNetModel(
            image_size=32, operations=self._operations, **ldm.arguments(config), **ldm.depths(config)
        )
        return unet
