"""First-come spill: what a driver's fallback does with whatever is allocated last, by an allocator of our own."""

from __future__ import annotations

import ctypes
import gc
import importlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from ....errors import UnavailableError, first_line
from ..machine import Machine
from .base import Peer, Step, Work, plain_step

_SOURCE = Path(__file__).with_name("first_come.c")
_COMPILERS = ("cc", "gcc", "clang")
_RUNTIME = ("cudaMalloc", "cudaHostAlloc", "cudaHostGetDevicePointer", "cudaFree", "cudaFreeHost")


class FirstCome(Peer):
    """Weights and activations as they come: dedicated memory until the budget and a step's activations are spent, then
    system memory that the card reads in place. A new model for each budget, its weights before its activations."""

    name = "first-come"
    summary = "first-come spill (a pluggable allocator: device memory until the budget, mapped pinned memory after it)"
    budgeted = True
    keeps_reference = False
    needs_gpu = True
    guessed_bytes_per_second = 1.1e9

    def __init__(self) -> None:
        self._library: Any = None
        self._spare_bytes: int | None = None

    def unavailable_because(self, machine: Machine) -> str | None:
        reason = super().unavailable_because(machine)
        if reason is None and sys.platform != "linux":
            reason = "it is written for Linux"
        if reason is None and _compiler() is None:
            reason = "there is no C compiler"
        return reason

    def prepare(self, machine: Machine) -> None:
        """Build the allocator and have torch use it from its first byte on."""
        path = build(Path(tempfile.mkdtemp(prefix="spillway-first-come-")))
        self._library = ctypes.CDLL(str(path))
        self._library.spill_set_budget.argtypes = [ctypes.c_size_t]
        self._library.spill_init.argtypes = [ctypes.c_void_p] * len(_RUNTIME)
        for name in ("spill_peak_device", "spill_peak_host", "spill_peak_used"):
            getattr(self._library, name).restype = ctypes.c_size_t
        runtime = ctypes.CDLL(cuda_runtime())
        self._library.spill_init(*(ctypes.cast(getattr(runtime, name), ctypes.c_void_p) for name in _RUNTIME))
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "spill_malloc", "spill_free")
        torch.cuda.memory.change_current_allocator(allocator)

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        module = work.new_module()
        gc.collect()
        torch.cuda.synchronize()
        self._library.spill_trim()
        # The same dedicated memory as a placement that keeps to this budget: its activations come on top of it.
        spare = self._activation_bytes(work.spec.weights_bytes)
        self._library.spill_set_budget((budget_bytes or 0) + spare)
        return plain_step(module.to(work.machine.device), work)

    def begin(self) -> None:
        self._library.spill_reset_peak()

    def facts(self) -> dict[str, Any]:
        return {
            "peak_dedicated_bytes": self._library.spill_peak_device(),
            "pinned_bytes": self._library.spill_peak_host(),
        }

    def _activation_bytes(self, weights_bytes: int) -> int:
        """torch keeps no count under another allocator: what the model's dedicated steps held on top of its weights."""
        if self._spare_bytes is None:
            self._spare_bytes = max(0, int(self._library.spill_peak_used()) - weights_bytes)
        return self._spare_bytes


def build(folder: Path) -> Path:
    """The allocator as a shared library in this folder.

    Raises:
        UnavailableError: there is no compiler, or it cannot build it.
    """
    compiler, path = _compiler(), folder / "first_come.so"
    if compiler is None:
        raise UnavailableError("First-come spill is unavailable, because there is no C compiler.")
    command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", "-o", str(path), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a compiler of the system
    if done.returncode:
        raise UnavailableError(
            f"First-come spill is unavailable, because {Path(compiler).name} cannot build it.", detail=done.stderr
        )
    return path


def cuda_runtime() -> str:
    """The CUDA runtime that torch has loaded into this process.

    Raises:
        UnavailableError: none is found; a torch with the runtime built in has none of its own.
    """
    importlib.import_module("torch.cuda")
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnavailableError(f"First-come spill is unavailable, because of {first_line(error)}.") from error
    for line in lines:
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith("libcudart.so"):
            return path
    raise UnavailableError("First-come spill is unavailable, because torch has loaded no CUDA runtime library.")


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, _COMPILERS)), None)
