"""The link: copies from pinned memory to the card that run beside the computation, kept in order by marks.

There are two queues: what the card computes, and what the link copies. A *mark* is a point in one of them. Either queue
can be made to wait for a mark of the other, without the host waiting for anything.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import torch

logger = logging.getLogger(__name__)

Mark = Any
"""A point in a queue; each link makes its own. Set anew, it means the new point. Unset, nobody waits for it."""


class Link(Protocol):
    """A card's copy engine. Slabs are contiguous ``uint8`` tensors: in system memory or on the card."""

    def pin(self, slab: torch.Tensor) -> bool:
        """Page-lock a slab in system memory, exactly its bytes; ``False`` where the system refuses."""

    def unpin(self, slab: torch.Tensor) -> None:
        """Undo :meth:`pin`. No copy of the slab may be queued any more."""

    def mark(self) -> Mark:
        """A new mark, not set yet."""

    def set_in_compute(self, mark: Mark) -> None:
        """Set the mark after everything that has been given to the card to compute."""

    def compute_waits(self, mark: Mark) -> None:
        """What the card is given to compute from now on begins after the mark."""

    def upload(self, source: torch.Tensor, target: torch.Tensor, after: Mark, begun: Mark, done: Mark) -> None:
        """Queue a copy from system memory to the card: not before ``after``, and ``begun`` and ``done`` set around it.

        A source that is not pinned is copied as well, but the host waits meanwhile.
        """

    def drain(self) -> None:
        """The host waits until both queues are empty."""

    def seconds_between(self, begun: Mark, done: Mark) -> float:
        """Seconds from one mark of a queue to a later one of the same queue; the host waits for the later one."""


class CudaLink:
    """A CUDA stream for copies beside the current stream, with events as marks.

    Pinning goes through the runtime's ``cudaHostRegister``, which torch binds in ``torch.cuda.cudart()``: it locks the
    pages of memory that exists already. ``Tensor.pin_memory`` would take up to twice as much, because torch's host
    allocator (``aten/src/ATen/core/CachingHostAllocator.h``) rounds each request up to a power of two.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def pin(self, slab: torch.Tensor) -> bool:
        code = int(torch.cuda.cudart().cudaHostRegister(slab.data_ptr(), slab.nbytes, 0))
        if code:
            logger.info("the system refused to pin %d bytes (CUDA error %d)", slab.nbytes, code)
            self._drain_error()
        return not code

    def unpin(self, slab: torch.Tensor) -> None:
        code = int(torch.cuda.cudart().cudaHostUnregister(slab.data_ptr()))
        if code:
            logger.warning("%d bytes could not be unpinned (CUDA error %d)", slab.nbytes, code)
            self._drain_error()

    def mark(self) -> Mark:
        return torch.cuda.Event(enable_timing=True)

    def set_in_compute(self, mark: Mark) -> None:
        mark.record(torch.cuda.current_stream(self._device))

    def compute_waits(self, mark: Mark) -> None:
        torch.cuda.current_stream(self._device).wait_event(mark)

    def upload(self, source: torch.Tensor, target: torch.Tensor, after: Mark, begun: Mark, done: Mark) -> None:
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(after)
            begun.record(self._stream)
            target.copy_(source, non_blocking=True)
            done.record(self._stream)

    def drain(self) -> None:
        torch.cuda.synchronize(self._device)

    def seconds_between(self, begun: Mark, done: Mark) -> float:
        done.synchronize()
        return float(begun.elapsed_time(done)) / 1000

    def _drain_error(self) -> None:
        """A failed runtime call leaves its code behind, and the next kernel launch would be blamed for it."""
        try:
            torch.zeros(1, device=self._device)
        except RuntimeError as error:
            logger.debug("drained: %s", error)
