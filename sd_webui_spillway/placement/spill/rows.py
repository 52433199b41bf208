"""How many rows a component's matrix products have, seen in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from .pieces import Group


class RowCount:
    """Counts from its making to :meth:`remove`."""

    def __init__(self, multiplied: Sequence[tuple[nn.Module, Group]]) -> None:
        self.rows: dict[Group, int] = {}
        """The most that a layer of the group was called with."""
        self._handles: list[RemovableHandle] = [
            module.register_forward_pre_hook(self._counter(group)) for module, group in multiplied
        ]

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _counter(self, group: Group) -> Any:
        def count(module: nn.Module, args: Any) -> None:
            del module
            if args and isinstance(args[0], torch.Tensor):
                self.rows[group] = max(self.rows.get(group, 0), args[0].numel() // group.width)

        return count
