"""Pieces: weights that are read in one way, and so stay on the card or spill together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ...units import KIB, MIB
from ..component import Component, ComponentKind
from ..stream.chunks import aligned
from ..stream.leaves import can_be_a_view, overlapping_of, tensors_of
from .suffering import Reading, reading_of


@dataclass(frozen=True)
class SpillOptions:
    """How weights are cut."""

    piece_bytes: int = 32 * MIB
    """The most that spills or comes back at once, unless a single weight is larger."""
    smallest_bytes: int = 64 * KIB
    """A weight smaller than this stays on the card."""


@dataclass(frozen=True)
class Group:
    """What weights of one piece have in common."""

    component: str
    kind: ComponentKind
    reading: Reading
    width: int
    """Of the rows that a weight is multiplied with: where it is the same, so is how many rows there are, nearly always
    (a UNet's levels differ in width, and text is as wide as its encoder). 0 where nothing is multiplied."""


@dataclass(frozen=True)
class Cut:
    """A model taken apart: every weight is in one piece or held."""

    pieces: tuple[tuple[Group, tuple[torch.Tensor, ...]], ...]
    held: tuple[torch.Tensor, ...]
    """Weights that stay on the card: small, sharing bytes with another, or of a kind that cannot be a view of other
    memory."""
    multiplied: Mapping[str, tuple[tuple[nn.Module, Group], ...]]
    """By component, the layers that multiply, each with its group."""

    @property
    def held_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.held)

    @property
    def spillable_bytes(self) -> int:
        """What all pieces take."""
        return sum(aligned(tensor.nbytes) for _, tensors in self.pieces for tensor in tensors)


def cut_up(components: Sequence[Component], options: SpillOptions) -> Cut:
    """Take components apart, wherever their weights are. A weight that several modules share is one, by its first."""
    everything = {id(t): t for component in components for t in tensors_of(component.module)}
    overlapping = overlapping_of(everything)
    grouped: dict[Group, list[torch.Tensor]] = {}
    multiplied: dict[str, list[tuple[nn.Module, Group]]] = {component.name: [] for component in components}
    held: list[torch.Tensor] = []
    seen: set[int] = set()
    for component, module, tensor in _owned(components):
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if tensor.nbytes < options.smallest_bytes or id(tensor) in overlapping or not can_be_a_view(tensor):
            held.append(tensor)
            continue
        reading = reading_of(module, tensor)
        width = tensor.shape[1] if reading is Reading.MULTIPLIED and tensor.dim() > 1 else 0
        group = Group(component.name, component.kind, reading, width)
        grouped.setdefault(group, []).append(tensor)
        if width:
            multiplied[component.name].append((module, group))
    pieces = tuple((group, piece) for group, tensors in grouped.items() for piece in _cut(tensors, options.piece_bytes))
    return Cut(pieces, tuple(held), {name: tuple(modules) for name, modules in multiplied.items()})


def least_on_card(cut: Cut, cap_bytes: int) -> int:
    """The least that a model's weights take on the card under this cap on shared memory. Pieces do not fill the cap to
    the byte, so one that binds binds a little earlier."""
    return cut.held_bytes + max(0, cut.spillable_bytes - cap_bytes)


def _owned(components: Sequence[Component]) -> Iterator[tuple[Component, nn.Module, torch.Tensor]]:
    for component in components:
        for module in component.module.modules():
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    yield component, module, tensor


def _cut(tensors: Sequence[torch.Tensor], piece_bytes: int) -> Iterator[tuple[torch.Tensor, ...]]:
    piece: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if piece and size + aligned(tensor.nbytes) > piece_bytes:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(tensor)
        size += aligned(tensor.nbytes)
    if piece:
        yield tuple(piece)
