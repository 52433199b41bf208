"""Forge's own offloading, from a folder of its sources, around the UNet that it ships."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ..machine import Machine
from ..models import ModelSpec
from . import ldm
from .base import Peer, Step, Work, plain_step
from .foreign import sources

_PARTS = ("backend/memory_management.py", "backend/operations.py", "backend/patcher/base.py", "backend/nn/unet.py")


class Forge(Peer):
    """``LoadedModel.model_load`` with the bytes that its page calls *GPU weights*. *Swap method* is ``queue`` or
    ``async``, *swap location* ``cpu`` or ``shared``."""

    budgeted = True

    def __init__(self, folder: Path, method: Literal["queue", "async"], location: Literal["cpu", "shared"]) -> None:
        self.name = f"forge-{method}-{location}"
        self.summary = f"Forge's own swap: {method}, {location}"
        self.guessed_bytes_per_second = 5e9 if location == "cpu" else 35e9
        self._folder, self._method, self._location = folder, method, location
        self._backend: dict[str, Any] = {}

    def unavailable_because(self, machine: Machine) -> str | None:
        return ldm.lacking(self._folder, _PARTS, ("einops", "gguf", "psutil")) or super().unavailable_because(machine)

    def prepare(self, machine: Machine) -> None:
        with sources(self._folder, ["--always-cpu"] if machine.simulated else []):
            for name in ("memory_management", "operations", "stream", "patcher.base", "nn.unet"):
                self._backend[name] = importlib.import_module(f"backend.{name}")
        self._backend["memory_management"].PIN_SHARED_MEMORY = self._location == "shared" and not machine.simulated
        self._backend["stream"].stream_activated = self._method == "async"

    def adapted(self, spec: ModelSpec) -> ModelSpec:
        return ldm.adapted(spec, "Forge", self._unet)

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        self._backend["operations"].cleanup_cache()
        unet = work.new_module()
        patcher = self._backend["patcher.base"].ModelPatcher(unet, work.machine.device, torch.device("cpu"))
        self._backend["memory_management"].LoadedModel(patcher).model_load(-1 if budget_bytes is None else budget_bytes)
        return plain_step(unet, work)

    def _unet(self, config: dict[str, Any]) -> nn.Module:
        """Its linear layers have their weights only from a checkpoint; torch's own layers say of what shapes."""
        unet_class = self._backend["nn.unet"].IntegratedUNet2DConditionModel
        told = ldm.arguments(config) | ldm.depths(config)
        checkpoint = unet_class(**told).state_dict()
        with self._backend["operations"].using_forge_operations():
            unet: nn.Module = unet_class(**told)
        unet.load_state_dict(checkpoint)
        return unet
