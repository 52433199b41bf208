"""The libraries' own offloading, each as its documentation says to use it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch

from ..machine import Machine
from ..models import ModelSpec
from .base import Peer, Step, Work, plain_step


class _OfLibrary(Peer):
    library: str

    def unavailable_because(self, machine: Machine) -> str | None:
        if importlib.util.find_spec(self.library) is None:
            return f"{self.library} is not installed"
        return super().unavailable_because(machine)


class AccelerateSequential(_OfLibrary):
    """What ``pipeline.enable_sequential_cpu_offload()`` does with each of its models."""

    name = "accelerate-sequential"
    summary = "accelerate.cpu_offload: one layer at a time (sequential CPU offload)"
    library = "accelerate"
    guessed_bytes_per_second = 4.5e9

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        accelerate: Any = importlib.import_module("accelerate")
        module = work.new_module()
        accelerate.cpu_offload(module, work.machine.device, offload_buffers=len(module._parameters) > 0)
        return plain_step(module, work)


class DiffusersModelOffload(_OfLibrary):
    """What ``pipeline.enable_model_cpu_offload()`` does with each of its models: while the UNet samples, it stays."""

    name = "diffusers-model"
    summary = "diffusers model offload: the whole model on the card while it is used"
    library = "accelerate"
    holds_all = True

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        accelerate: Any = importlib.import_module("accelerate")
        module, _ = accelerate.cpu_offload_with_hook(work.new_module(), work.machine.device)
        return plain_step(module, work)


class DiffusersGroup(_OfLibrary):
    """``apply_group_offloading`` with a stream; blocks one a group, which is what a stream allows."""

    library = "diffusers"

    def __init__(self, kind: str, *, record_stream: bool = False, low_cpu_mem: bool = False) -> None:
        self._type = f"{kind}_level"
        self._options = {"record_stream": record_stream, "low_cpu_mem_usage": low_cpu_mem}
        extra = [name for name, on in (("record_stream", record_stream), ("low_cpu_mem_usage", low_cpu_mem)) if on]
        short = "".join("-record" if name == "record_stream" else "-low-cpu" for name in extra)
        self.name = f"diffusers-{kind}{short}"
        self.summary = ", ".join([f"diffusers group offload, {self._type}, use_stream", *extra])
        self.guessed_bytes_per_second = 9e9 if low_cpu_mem else 35e9

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        hooks: Any = importlib.import_module("diffusers.hooks")
        module, device = work.new_module(), work.machine.device
        options: dict[str, Any] = {"offload_type": self._type, "offload_device": torch.device("cpu")}
        if self._type == "block_level":
            options["num_blocks_per_group"] = 1
        if not work.machine.simulated:  # without a card diffusers refuses a stream
            options |= {"use_stream": True, "non_blocking": True, **self._options}
        hooks.apply_group_offloading(module, onload_device=device, **options)
        return plain_step(module, work)


class Mmgp(_OfLibrary):
    """mmgp with a budget by model, everything pinned, nothing quantised. It means megabytes of 2²⁰ bytes, and takes up
    to twice the budget, because the next block comes while one is computed."""

    name = "mmgp"
    summary = "mmgp, budgets by model, pinned, not quantised"
    library = "mmgp"
    budgeted = True
    needs_gpu = True
    guessed_bytes_per_second = 20e9

    def __init__(self) -> None:
        self._offload: Any = None

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        offload: Any = importlib.import_module("mmgp").offload
        if self._offload is not None:
            self._offload.release()
        module = work.new_module()
        budgets = {"transformer": max(1, (budget_bytes or 0) // 2**20)}
        self._offload = offload.all(
            {"transformer": module}, pinnedMemory=True, quantizeTransformer=False, budgets=budgets,
            convertWeightsFloatTo=None,
        )  # fmt: skip
        return plain_step(module, work)

    def guessed_seconds(self, spec: ModelSpec, budget_bytes: int | None) -> float:
        return 2 * super().guessed_seconds(spec, budget_bytes)
