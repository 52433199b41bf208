"""The webui hides an out-of-memory while it applies a LoRA and takes it for applied; here it is brought to light."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import first_line
from ...recovery.method_patch import PatchSet
from ...recovery.out_of_memory import is_out_of_memory

_ATTRIBUTES = ("network_apply_weights", "loaded_networks", "extra_network_lora")
_NEVER_WANTED = (("half applied", 0.0, 0.0, None),)
"""No set of networks is named so: the layer's weights are restored and the wanted ones applied again."""


class LoraErrors:
    """Raises what ``network_apply_weights`` swallows, so that the guard repeats the component's call."""

    def __init__(self) -> None:
        self._networks: Any = None
        self._hidden: str | None = None

    def install(self, patches: PatchSet) -> None:
        """Wrap it, once it is loaded; a second time does nothing."""
        found = _networks_module()
        if found is None or found is self._networks:
            return
        self._networks = found
        patches.wrap(found, "network_apply_weights", self._apply)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around a job."""
        network = getattr(self._networks, "extra_network_lora", None)
        if network is None:
            yield
            return
        before, self._hidden = network.errors, None
        network.errors = _Errors(before, self._note)
        try:
            yield
        finally:
            before.clear()
            before.update(network.errors)
            network.errors = before

    def _note(self, words: str) -> None:
        self._hidden = words

    def _apply(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        if self._hidden is not None:
            words, self._hidden = self._hidden, None
            layer = args[0] if args else kwargs["self"]
            layer.network_current_names = _NEVER_WANTED
            raise torch.cuda.OutOfMemoryError(words)
        return result


class _Errors(dict[str, int]):
    """Errors by network, as the webui counts them inside its ``except``; an out-of-memory is told and not counted."""

    def __init__(self, counts: dict[str, int], on_out_of_memory: Callable[[str], None]) -> None:
        super().__init__(counts)
        self._on_out_of_memory = on_out_of_memory

    def __setitem__(self, name: str, count: int) -> None:
        error = sys.exc_info()[1]
        if error is not None and is_out_of_memory(error):
            self._on_out_of_memory(first_line(error))
        else:
            super().__setitem__(name, count)


def _networks_module() -> Any:
    """The built-in LoRA extension's module, whose name is too common to go by."""
    for module in list(sys.modules.values()):
        if all(name in getattr(module, "__dict__", {}) for name in _ATTRIBUTES):
            return module
    return None
