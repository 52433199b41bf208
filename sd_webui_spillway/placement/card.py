"""The card: where dedicated memory is. Everything that moves a byte to or from it goes through this interface."""

from __future__ import annotations

import gc
import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from ..errors import BadInputError, UnavailableError
from ..units import format_bytes
from .link import CudaLink, Link
from .tensor_tree import map_tensors

logger = logging.getLogger(__name__)
UNMEASURED_LINK = "it has not been measured on a real GPU yet"


class Card(Protocol):
    """One device with dedicated memory of its own: a CUDA GPU, or a simulated one. Sizes are bytes."""

    label: str
    simulated: bool
    device: torch.device
    """What a host must use as its execution device."""
    moved_bytes: int
    """Copied to and from the card since the process began."""
    no_link_because: str | None
    """Why this card has no :attr:`link`; ``None`` where it has one."""

    @property
    def link(self) -> Link:
        """The copy engine beside the computation.

        Raises:
            UnavailableError: this card has none.
        """

    @property
    def total_bytes(self) -> int: ...

    @property
    def limit_bytes(self) -> int:
        """What this process may use: the whole card, or the rehearsed smaller one."""

    def used_bytes(self) -> int:
        """Alive on the card in this process, weights and activations."""

    def free_bytes(self) -> int:
        """What this process could still take: under its limit, and beside other processes."""

    def peak_bytes(self) -> int:
        """The most that was used since :meth:`reset_peak`."""

    def reset_peak(self) -> None: ...

    def resting(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor.data``, known from now on to be in system memory (a simulated card cannot see that by itself)."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the card, always a new storage.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit; nothing was taken.
        """

    def slab(self, size_bytes: int) -> torch.Tensor:
        """This many bytes (``uint8``) on the card, their contents undefined, as one new storage.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit; nothing was taken.
        """

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in system memory, always a new storage."""

    def fetch_into(self, tensor: torch.Tensor, target: torch.Tensor) -> None:
        """Copy into a tensor of the same shape and type in system memory; done when this returns."""

    def bring(self, inputs: Any) -> Any:
        """A call's arguments with every tensor on the card. A host that infers its device from where weights rest
        (diffusers does for text encoders) hands over tensors in system memory."""

    def call_scope(self, inputs: Any) -> AbstractContextManager[None]:
        """Around one component call: what is alive inside counts as memory on the card, ``inputs`` included."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's bytes are on the card. Those that it reads in place are not."""

    def synchronize(self) -> None:
        """Wait until everything queued on the card is done."""

    def release_cached(self) -> None:
        """Give back what is reserved but not in use, and drain errors that a failed call left behind."""

    def close(self) -> None:
        """Undo what this object set on the device."""


class CudaCard:
    """A real CUDA (or ROCm) device. Touch it only once the host has initialised CUDA, or where we are the host."""

    simulated = False

    def __init__(self, limit_bytes: int | None = None, index: int | None = None, *, link: bool = False) -> None:
        """Use device ``index`` (the current one by default), limited to ``limit_bytes`` of it. ``link`` lets what
        needs a copy engine run: tests and measurements ask for it until a real GPU has shown it right.

        The limit is ``torch.cuda.set_per_process_memory_fraction``: it holds for what torch's caching allocator
        reserves. The CUDA context (about 0.5 GiB) comes on top, as it does on a card of that size.

        Raises:
            BadInputError: the limit is larger than the card.
        """
        if not torch.cuda.is_available():
            raise UnavailableError("A CUDA card is unavailable, because torch finds none.")
        self.device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
        self.moved_bytes = 0
        self.no_link_because = None if link else UNMEASURED_LINK
        self._link: Link | None = None
        self._total_bytes = torch.cuda.get_device_properties(self.device).total_memory
        if limit_bytes is not None and limit_bytes > self._total_bytes:
            raise BadInputError(
                f"The limit of {format_bytes(limit_bytes)} is more than the card's {format_bytes(self._total_bytes)}."
            )
        self._limit_bytes = limit_bytes
        name = torch.cuda.get_device_name(self.device)
        self.label = name if limit_bytes is None else f"{name} limited to {format_bytes(limit_bytes)}"
        if limit_bytes is not None:
            torch.cuda.set_per_process_memory_fraction(limit_bytes / self._total_bytes, self.device)

    @property
    def link(self) -> Link:
        if self._link is None:
            self._link = CudaLink(self.device)
        return self._link

    @property
    def total_bytes(self) -> int:
        return self._total_bytes

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes if self._limit_bytes is not None else self._total_bytes

    def used_bytes(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    def free_bytes(self) -> int:
        driver_free, _ = torch.cuda.mem_get_info(self.device)
        allocated = torch.cuda.memory_allocated(self.device)
        reserved = torch.cuda.memory_reserved(self.device)
        return max(0, min(self.limit_bytes - allocated, driver_free + reserved - allocated))

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self.device)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def resting(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.data

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False), torch.no_grad():
            copy = tensor.to(self.device, copy=True)
        self.moved_bytes += tensor.nbytes
        return copy

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False), torch.no_grad():
            copy = tensor.to("cpu", copy=True)
        self.moved_bytes += tensor.nbytes
        return copy

    def slab(self, size_bytes: int) -> torch.Tensor:
        with torch.inference_mode(False):
            return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def fetch_into(self, tensor: torch.Tensor, target: torch.Tensor) -> None:
        with torch.inference_mode(False), torch.no_grad():
            target.copy_(tensor)
        self.moved_bytes += tensor.nbytes

    def bring(self, inputs: Any) -> Any:
        return map_tensors(inputs, lambda tensor: tensor.to(self.device))

    def call_scope(self, inputs: Any) -> AbstractContextManager[None]:
        del inputs
        return nullcontext()

    def holds(self, tensor: torch.Tensor) -> bool:
        on_device = tensor.device.type == self.device.type
        return on_device and not (self._link is not None and self._link.maps(tensor))

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def release_cached(self) -> None:
        gc.collect()
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            # An allocation that failed outside torch (cuBLAS, cuDNN) is reported again by the next call; once.
            logger.debug("drained: %s", error)
        torch.cuda.empty_cache()

    def close(self) -> None:
        if self._limit_bytes is not None:
            torch.cuda.set_per_process_memory_fraction(1.0, self.device)
