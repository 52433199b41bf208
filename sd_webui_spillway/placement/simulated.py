"""A card that exists only as a count of bytes: for rehearsing and testing where there is no GPU.

It counts truly: every weight copied to it and every tensor alive inside a component call, by storage, and raises
torch's own OutOfMemoryError past its size. A CPU tensor has no address on a card, so where a byte lives is kept in a
registry; what a link has the card read in place is counted nowhere and goes with either place. Mixing the two places in
one operation fails, as it does on a real device. Workspaces that a CUDA library would take on top are not known to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import UnavailableError
from ..units import format_bytes
from .link import Link
from .live_storage import LiveStorages
from .simulated_link import POISON, SimulatedLink
from .tensor_tree import tensors_in

NO_LINK = "it needs a CUDA card, whose copy engine works beside the computation"
_NO_COMPUTATION = frozenset({"aten._has_compatible_shallow_copy_type.default"})
"""Pointing a tensor's ``.data`` elsewhere asks this of both tensors, in inference mode by way of the dispatcher."""
_MANY = 2000
"""Activations counted at once, the dead included, before the dead are dropped for their number alone."""


class SimulatedCard:
    """A simulated card of ``total_bytes``; it computes on the CPU. One thread may be inside a call at a time."""

    simulated = True
    device = torch.device("cpu")

    def __init__(self, total_bytes: int, link: SimulatedLink | None = None) -> None:
        """``link`` lets what needs a copy engine run here as well; a rehearsal has none."""
        self._link = link
        self.no_link_because = None if link else NO_LINK
        self.label = f"simulated card of {format_bytes(total_bytes)} (runs on the CPU)"
        self.moved_bytes = 0
        self._total_bytes = total_bytes
        self._weights = LiveStorages()
        self._activations = LiveStorages()
        self._system = LiveStorages()
        self._peak_bytes = 0
        self._lock = threading.RLock()

    @property
    def link(self) -> Link:
        if self._link is None:
            raise UnavailableError(f"The link is unavailable, because {NO_LINK}.")
        return self._link

    @property
    def total_bytes(self) -> int:
        return self._total_bytes

    @property
    def limit_bytes(self) -> int:
        return self._total_bytes

    def used_bytes(self) -> int:
        with self._lock:
            return self._weights.sweep() + self._activations.sweep()

    def free_bytes(self) -> int:
        return max(0, self._total_bytes - self.used_bytes())

    def peak_bytes(self) -> int:
        return self._peak_bytes

    def reset_peak(self) -> None:
        self._peak_bytes = self.used_bytes()

    def resting(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():
            data = tensor.data
        with self._lock:
            self._system.add(data)
        return data

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = _uncounted_copy(tensor)
        with self._lock:
            if not self.holds(tensor):
                self._system.add(tensor)
            self._take(copy, self._weights)
            self.moved_bytes += tensor.nbytes
        return copy

    def slab(self, size_bytes: int) -> torch.Tensor:
        with torch._C._DisableTorchDispatch(), torch.inference_mode(False):
            slab = torch.full((size_bytes,), POISON, dtype=torch.uint8)
        with self._lock:
            self._take(slab, self._weights)
        if self._link is not None:
            self._link.watch(slab)
        return slab

    def fetch_into(self, tensor: torch.Tensor, target: torch.Tensor) -> None:
        with torch._C._DisableTorchDispatch(), torch.inference_mode(False), torch.no_grad():
            target.copy_(tensor)
        if self._link is not None:
            self._link.computed((tensor,))
        self.moved_bytes += tensor.nbytes

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = _uncounted_copy(tensor)
        with self._lock:
            self._system.add(copy)
            self.moved_bytes += tensor.nbytes
        return copy

    def bring(self, inputs: Any) -> Any:
        return inputs

    @contextmanager
    def call_scope(self, inputs: Any) -> Iterator[None]:
        with self._lock:
            self._system.sweep()
            for tensor in tensors_in(inputs):
                if tensor not in self._weights and tensor not in self._system:
                    self._take(tensor, self._activations)
        with _CountingMode(self._after_operation):
            yield

    def holds(self, tensor: torch.Tensor) -> bool:
        with self._lock:
            return tensor in self._weights or tensor in self._activations

    def synchronize(self) -> None:
        """The CPU computes at once: there is nothing to wait for."""

    def release_cached(self) -> None:
        """A count of bytes has no cache to release."""

    def close(self) -> None:
        """Nothing was set on any device."""

    def _take(self, tensor: torch.Tensor, kind: LiveStorages) -> None:
        """Count a new storage, or raise as CUDA does and count nothing."""
        size = kind.add(tensor)
        if len(self._activations) < _MANY and self._counted_bytes() <= min(self._peak_bytes, self._total_bytes):
            return  # Even with the dead still counted this is no new peak, so nobody need look which are dead.
        used = self._weights.sweep() + self._activations.sweep() - size
        if used + size > self._total_bytes:
            kind.discard(tensor)
            raise torch.cuda.OutOfMemoryError(
                f"Simulated card out of memory. Tried to allocate {format_bytes(size)}; {format_bytes(used)} of "
                f"{format_bytes(self._total_bytes)} are in use."
            )
        self._peak_bytes = max(self._peak_bytes, used + size)

    def _counted_bytes(self) -> int:
        return self._weights.counted_bytes + self._activations.counted_bytes

    def _after_operation(self, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """Give each new storage the place of the operation's inputs; refuse an operation over both places."""
        if self._link is not None:
            self._link.computed((*inputs, *outputs))
        with self._lock:
            in_system = [t for t in inputs if t in self._system]
            on_card = any(t.dim() and t not in self._system for t in inputs)
            if on_card and any(t.dim() for t in in_system):
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two: "
                    f"the simulated card and system memory, in {name}."
                )
            for tensor in (*inputs, *outputs):
                if tensor in self._weights or tensor in self._activations or tensor in self._system:
                    continue
                if self._link is not None and self._link.maps(tensor):
                    continue  # shared memory, which the card reads and does not hold
                if in_system and not on_card:
                    self._system.add(tensor)
                else:
                    self._take(tensor, self._activations)


def _uncounted_copy(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C._DisableTorchDispatch(), torch.inference_mode(False), torch.no_grad():
        return tensor.clone(memory_format=torch.preserve_format)


class _CountingMode(TorchDispatchMode):
    """Reports the tensors that go into and come out of every operation below the autograd layer."""

    def __init__(self, report: Callable[[str, list[torch.Tensor], list[torch.Tensor]], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._report = report

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        if str(func) in _NO_COMPUTATION:
            return result
        self._report(str(func), tensors_in((args, kwargs)), tensors_in(result))
        return result
