"""Tensors inside nested lists, tuples and mappings: a call's arguments, or a library's output objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def tensors_in(tree: object) -> list[torch.Tensor]:
    """Every tensor in the tree."""
    found: list[torch.Tensor] = []
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
    return found


def map_tensors(tree: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same tree with each tensor replaced; a part in which nothing was replaced stays the same object."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, dict):
        changed = {key: map_tensors(value, function) for key, value in tree.items()}
        return changed if any(changed[key] is not value for key, value in tree.items()) else tree
    if isinstance(tree, (list, tuple)):
        items = [map_tensors(value, function) for value in tree]
        if all(item is value for item, value in zip(items, tree, strict=True)):
            return tree
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree
