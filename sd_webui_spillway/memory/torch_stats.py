"""Dedicated memory as PyTorch sees it, once the program has started CUDA. Never imports torch, never starts CUDA."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..errors import first_line
from .snapshot import Reading

_FIGURES = ("dedicated_total_bytes", "dedicated_limit_bytes", "dedicated_used_bytes", "dedicated_process_bytes")


def loaded_torch() -> Any | None:
    """The torch module, if something else has imported it."""
    return sys.modules.get("torch")


def started_cuda(torch: Any | None) -> Any | None:
    """``torch.cuda``, if the program has started it. Asking anything else first could create a CUDA context, which
    costs hundreds of MB and fixes the visible devices."""
    # A torch that another thread is still importing has no attributes yet.
    cuda = getattr(torch, "cuda", None)
    initialised = getattr(cuda, "is_initialized", None)
    return cuda if initialised is not None and initialised() else None


def torch_device_uuid(device_index: int = 0, torch: Callable[[], Any | None] = loaded_torch) -> str | None:
    """The uuid of torch's device as NVML writes it (``GPU-…``); ``None`` before CUDA is started, and with a torch that
    does not tell (older than 2.3)."""
    cuda = started_cuda(torch())
    if cuda is None:
        return None
    uuid = getattr(cuda.get_device_properties(device_index), "uuid", None)
    if uuid is None:
        return None
    text = str(uuid)
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


class TorchProvider:
    """Asked after NVML: what the process has is here only what torch's allocator holds, without the CUDA context and
    without other libraries. ``fraction`` is the part of the card this process may use."""

    name = "torch"

    def __init__(
        self,
        device_index: int = 0,
        fraction: Callable[[], float] = lambda: 1.0,
        torch: Callable[[], Any | None] = loaded_torch,
    ) -> None:
        self._device_index = device_index
        self._fraction = fraction
        self._torch = torch

    def read(self) -> Reading:
        torch = self._torch()
        if torch is None:
            return _unknown("torch is not loaded")
        try:
            cuda = started_cuda(torch)
            if cuda is None:
                return _unknown("CUDA is not in use by this process")
            free_bytes, total_bytes = cuda.mem_get_info(self._device_index)
            return Reading({
                "device_name": str(cuda.get_device_properties(self._device_index).name),
                "dedicated_total_bytes": int(total_bytes),
                "dedicated_limit_bytes": int(total_bytes * self._fraction()),
                "dedicated_used_bytes": int(total_bytes - free_bytes),
                "dedicated_process_bytes": int(cuda.memory_reserved(self._device_index)),
            })
        except RuntimeError as error:  # how torch reports every CUDA error
            return _unknown(f"torch: {first_line(error)}")


def _unknown(reason: str) -> Reading:
    return Reading(unknown_because=dict.fromkeys(_FIGURES, reason))
