"""The order in which a component's leaves are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from .leaves import Leaf


class Trace:
    """Records the leaves' calls from :meth:`install` to :meth:`remove`."""

    def __init__(self, leaves: Mapping[str, Leaf]) -> None:
        self.order: list[str] = []
        self._leaves = leaves
        self._handles: list[RemovableHandle] = []

    def install(self) -> None:
        for name, leaf in self._leaves.items():
            self._handles.append(leaf.module.register_forward_pre_hook(self._recorder(name)))

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _recorder(self, name: str) -> Any:
        def record(module: nn.Module, args: Any) -> None:
            del module, args
            self.order.append(name)

        return record
