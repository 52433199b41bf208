"""Which layers of a module can stream, and which of its weights have to stay on the card beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import torch
from torch import nn


@dataclass(frozen=True)
class Leaf:
    """One layer as it is called, with the weights that nothing else uses."""

    module: nn.Module
    tensors: tuple[torch.Tensor, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


@dataclass(frozen=True)
class Layers:
    """A module taken apart: every weight is either a leaf's or held."""

    leaves: Mapping[str, Leaf]
    """By name, in the order in which the module lists them."""
    held: tuple[torch.Tensor, ...]
    """Weights that stay on the card while the module is used: shared by several leaves, owned by a module that is only
    a container, or of a kind that cannot be a view of other memory."""
    called: tuple[nn.Module, ...]
    """Every layer that is called, those with nothing but held weights included."""

    def without(self, names: frozenset[str]) -> Layers:
        """These leaves' weights held as well."""
        left = {name: leaf for name, leaf in self.leaves.items() if name not in names}
        more = tuple(tensor for name in names for tensor in self.leaves[name].tensors)
        return Layers(left, (*self.held, *more), self.called)


def layers_of(root: nn.Module, chunk_bytes: int) -> Layers:
    """Take a component's module apart.

    A leaf is what is *called*: the outermost module that owns a weight. ``root`` itself, and a module larger than a
    chunk that has weights and layers, are containers: their layers are leaves and only what they own is held.
    """
    modules = {id(module): (name, module) for name, module in _called(root, root, chunk_bytes, "")}
    users: dict[int, int] = {}
    for _, module in modules.values():
        for tensor in tensors_of(module):
            users[id(tensor)] = users.get(id(tensor), 0) + 1
    everything = {id(tensor): tensor for tensor in tensors_of(root)}
    overlapping = overlapping_of(everything)
    streamed: set[int] = set()
    leaves = {}
    for name, module in modules.values():
        own = tuple(
            tensor for tensor in tensors_of(module)
            if users[id(tensor)] == 1 and id(tensor) not in overlapping and can_be_a_view(tensor)
        )
        streamed.update(id(tensor) for tensor in own)
        if own:
            leaves[name] = Leaf(module, own)
    held = tuple(tensor for key, tensor in everything.items() if key not in streamed)
    return Layers(leaves, held, tuple(module for _, module in modules.values()))


def _called(module: nn.Module, root: nn.Module, chunk_bytes: int, name: str) -> Iterator[tuple[str, nn.Module]]:
    owns = any(tensor is not None for tensor in (*module._parameters.values(), *module._buffers.values()))
    if owns and not _is_container(module, root, chunk_bytes):
        if module is not root:
            yield name, module
        return
    for child_name, child in module.named_children():
        yield from _called(child, root, chunk_bytes, f"{name}.{child_name}" if name else child_name)


def _is_container(module: nn.Module, root: nn.Module, chunk_bytes: int) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return False  # it uses its out_proj's weights without calling it
    return module is root or (
        any(True for child in module.children() for _ in tensors_of(child))
        and sum(tensor.nbytes for tensor in tensors_of(module)) > chunk_bytes
    )


def tensors_of(module: nn.Module) -> Iterator[torch.Tensor]:
    """Every parameter and buffer of a module."""
    return chain(module.parameters(), module.buffers())


def can_be_a_view(tensor: torch.Tensor) -> bool:
    """Plain and dense: every byte between its first and its last is its own, in whatever order of dimensions."""
    plain = type(tensor) in (torch.Tensor, nn.Parameter, getattr(nn, "Buffer", torch.Tensor))
    return plain and tensor.layout is torch.strided and tensor.numel() > 0 and _extent(tensor) == tensor.nbytes


def _extent(tensor: torch.Tensor) -> int:
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


def overlapping_of(tensors: Mapping[int, torch.Tensor]) -> frozenset[int]:
    """Those that share bytes with another one (two names of one storage): an edit of one is an edit of the other."""
    spans = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + _extent(tensor), key)
        for key, tensor in tensors.items()
        if tensor.layout is torch.strided and tensor.numel()
    )
    found: set[int] = set()
    end, last = 0, 0
    for start, stop, key in spans:
        if start < end:
            found.update((last, key))
        if stop > end:
            end, last = stop, key
    return frozenset(found)
