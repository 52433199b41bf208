"""How much memory a call's activations take, found by running it without memory.

The component runs under torch's FakeTensorMode, where tensors have sizes and no data, while a dispatch mode counts the
storages that are alive. About a second for an SDXL UNet at any size and batch. What a library takes as workspace on top
is not seen: :mod:`.footprint` adds what was measured for it.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..placement.live_storage import LiveStorages
from ..placement.tensor_tree import tensors_in

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


class ActivationMeter:
    """Counts on a weightless copy of a module, without its hooks and without the patches on its methods.

    The copy is made at the first count, which for an SDXL UNet takes as long as a count: a host that only loads a
    model is not kept waiting."""

    def __init__(self, module: nn.Module, adapt: Callable[[nn.Module], None] = lambda copy: None) -> None:
        """``adapt`` takes out of the copy what a host has put on the modules and cannot run without memory."""
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._lock = threading.Lock()
        self._original = module
        self._copy: nn.Module | None = None
        self._adapt = adapt
        self._half = any(tensor.element_size() < 4 for tensor in module.parameters())

    def peak_bytes(self, call: str, inputs: Callable[[], Inputs]) -> int:
        """The most bytes alive at once in ``module.call(*args, **kwargs)``, inputs included and weights not.

        Args:
            call: name of the method.
            inputs: makes the call's arguments; its tensors will be fake ones on the CPU.
        """
        with self._lock, torch.no_grad(), self._mode:
            if self._copy is None:
                made = _weightless(self._original)
                self._adapt(made)
                self._copy = made
            args, kwargs = inputs()
            counting = LiveBytesMode(chain(self._copy.parameters(), self._copy.buffers()))
            counting.include((args, kwargs))
            # AUTOMATIC1111 runs half precision so, and its layers count on it; where nothing is mixed nothing changes.
            with counting, torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._half):
                getattr(self._copy, call)(*args, **kwargs)
            return counting.peak_bytes


def _weightless(module: nn.Module) -> nn.Module:
    """A copy that runs without memory. What hangs on a module's calls (hooks, patched methods) belongs to the module it
    was hung on, weights and all, and is not copied. Weights of one shape are one tensor: nobody reads them."""
    fakes: dict[tuple[Any, ...], torch.Tensor] = {}
    memo: dict[int, Any] = {}
    for tensor in _all_tensors(module):
        kind = (tuple(tensor.shape), fake_dtype(tensor.dtype), isinstance(tensor, nn.Parameter))
        if kind not in fakes:
            fake = torch.empty(kind[0], dtype=kind[1])
            fakes[kind] = nn.Parameter(fake, requires_grad=False) if kind[2] else fake
        memo[id(tensor)] = fakes[kind]
    for part in module.modules():
        memo[id(part._forward_hooks)], memo[id(part._forward_pre_hooks)] = OrderedDict(), OrderedDict()
        memo.update((id(vars(part)[name]), _patched) for name in _patched_methods(part))
    weightless = copy.deepcopy(module, memo)
    for part in weightless.modules():
        for name in _patched_methods(part):
            delattr(part, name)
    without_fused_attention(weightless)
    return weightless


def _patched() -> None:
    """Stands for a patched method until the copy has its class's own again."""


def _patched_methods(part: nn.Module) -> list[str]:
    return [name for name, value in vars(part).items() if callable(value) and hasattr(type(part), name)]


def _all_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    """Those that a module owns, and those that somebody keeps on it (a LoRA's backup of the weights)."""
    for part in module.modules():
        yield from tensors_in((part._parameters, part._buffers))
        kept = (value for name, value in vars(part).items() if name not in ("_parameters", "_buffers", "_modules"))
        yield from tensors_in([value for value in kept if isinstance(value, (torch.Tensor, list, tuple, dict))])


def without_fused_attention(module: nn.Module) -> None:
    """Keep every ``nn.MultiheadAttention`` off its fused kernel, which hides what it allocates and, up to torch 2.3,
    cannot run without memory. It takes the kernel in evaluation mode only; without dropout nothing else changes."""
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
            part.training = True


def fake_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type to count with: bfloat16 for float16, because on the CPU, where the count runs, torch has its memory-
    saving attention for one and not, in older versions, for the other. Both are two bytes. Numbers of one byte are
    only stored so, and computed with as two."""
    narrow = dtype is torch.float16 or (dtype.is_floating_point and dtype.itemsize == 1)
    return torch.bfloat16 if narrow else dtype


class LiveBytesMode(TorchDispatchMode):
    """Counts the bytes of the tensors alive while it is on, a module's weights left out."""

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._weights = LiveStorages()
        self._live = LiveStorages()
        for tensor in weights:
            self._weights.add(tensor)

    def include(self, tree: Any) -> None:
        """Count the tensors in these arguments or results from now on, for as long as they live."""
        for tensor in tensors_in(tree):
            if tensor not in self._weights:
                self._live.add(tensor)
        self.peak_bytes = max(self.peak_bytes, self._live.sweep())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        self._live.sweep()
        result = func(*args, **(kwargs or {}))
        self.include(result)
        return result
