"""The link: what the card has of pinned memory. Copies run beside the computation, kept in order by marks; or the card
reads the memory in place.

There are two queues: what the card computes, and what the link copies. A *mark* is a point in one of them. Either queue
can be made to wait for a mark of the other, without the host waiting for anything.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from typing import Any, Protocol

import torch

from ..errors import UnavailableError

logger = logging.getLogger(__name__)
_MAPPED = 2
"""``cudaHostRegisterMapped`` in ``driver_types.h``. Where the card cannot map memory, asking for the address fails, and
pinning does not."""
_PROBED_BYTES = 4096

Mark = Any
"""A point in a queue; each link makes its own. Set anew, it means the new point. Unset, nobody waits for it."""


class Link(Protocol):
    """A card's copy engine. Slabs are contiguous ``uint8`` tensors: in system memory or on the card."""

    def pin(self, slab: torch.Tensor) -> bool:
        """Page-lock a slab in system memory, exactly its bytes; ``False`` where the system refuses."""

    def unpin(self, slab: torch.Tensor) -> None:
        """Undo :meth:`pin`. No copy of the slab may be queued any more."""

    def mapped(self, slab: torch.Tensor) -> torch.Tensor:
        """A pinned slab as the card sees it: a tensor of the card's device over the same bytes, read and written in
        place. It keeps nothing alive: nothing may compute with it, or with a view of it, once the slab is unpinned.

        Raises:
            UnavailableError: this card does not read pinned memory in place.
        """

    def maps(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's bytes are a slab's that :meth:`mapped` made the card see."""

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
        self._mapped: dict[int, int] = {}
        """Address in system memory by address on the card."""
        self._probed = False

    def pin(self, slab: torch.Tensor) -> bool:
        code = int(torch.cuda.cudart().cudaHostRegister(slab.data_ptr(), slab.nbytes, _MAPPED))
        if code:
            logger.info("the system refused to pin %d bytes (CUDA error %d)", slab.nbytes, code)
            self._drain_error()
        return not code

    def mapped(self, slab: torch.Tensor) -> torch.Tensor:
        torch.cuda.current_stream(self._device).query()  # makes the device's context this thread's
        address = _address_on_card(slab.data_ptr())
        with torch.inference_mode(False):
            storage = torch._C._construct_storage_from_data_pointer(address, self._device, slab.nbytes)
            seen = torch.empty(0, dtype=torch.uint8, device=self._device).set_(storage, 0, (slab.nbytes,), (1,))
            if not self._probed:
                self._probe(slab, seen)
        self._mapped[address] = slab.data_ptr()
        return seen

    def _probe(self, slab: torch.Tensor, seen: torch.Tensor) -> None:
        """Have a kernel read both ends, once: a wrong address would show as wrong pictures."""
        for part in (slice(None, _PROBED_BYTES), slice(-_PROBED_BYTES, None)):
            if not torch.equal(seen[part].bitwise_not().cpu(), slab[part].bitwise_not()):
                raise UnavailableError("Reading in place is unavailable, because the card reads other bytes there.")
        self._probed = True

    def maps(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._device.type and tensor.untyped_storage().data_ptr() in self._mapped

    def unpin(self, slab: torch.Tensor) -> None:
        self._mapped = {card: host for card, host in self._mapped.items() if host != slab.data_ptr()}
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


def _address_on_card(address: int) -> int:
    """Where the card sees pinned memory, which need not be where the processor does.

    torch does not bind ``cudaHostGetDevicePointer``; this is the driver's function beneath it, in a library whose name
    is the same for every version.

    Raises:
        UnavailableError: the driver has no such address.
    """
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        ask = driver.cuMemHostGetDevicePointer_v2
    except (OSError, AttributeError) as error:
        raise UnavailableError("Reading in place is unavailable, because there is no CUDA driver here.") from error
    found = ctypes.c_uint64()
    code = int(ask(ctypes.byref(found), ctypes.c_void_p(address), ctypes.c_uint(0)))
    if code:
        raise UnavailableError(f"Reading in place is unavailable, because the driver refuses it (error {code}).")
    return found.value
