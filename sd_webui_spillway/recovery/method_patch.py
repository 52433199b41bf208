"""Replace one method of an object, or one function of a module or class, and put it back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)
Wrapper = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
_MISSING = object()


class MethodPatch:
    """``around(original, args, kwargs)`` runs in place of ``owner.name(...)`` until :meth:`undo`.

    Of an instance only the instance is touched; its class, and other instances, are not. Of a class, ``args`` begin
    with the instance. The signature stays visible.
    """

    def __init__(self, owner: Any, name: str, around: Wrapper) -> None:
        self._owner = owner
        self._name = name
        self._before = vars(owner).get(name, _MISSING)
        self._in_force = True
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(*args: Any, **kwargs: Any) -> Any:
            return around(original, args, kwargs) if self._in_force else original(*args, **kwargs)

        self._patched = patched
        setattr(owner, name, patched)

    def undo(self) -> None:
        """Put back what was there. A second time does nothing.

        Where somebody patched over it since, taking it out would lose their patch: it stays, and only passes through.
        """
        self._in_force = False
        current = vars(self._owner).get(self._name, _MISSING)
        if current is self._before:
            return
        if current is not self._patched:
            logger.info("%s was patched by somebody else since; our patch stays there and does nothing", self._name)
            return
        if self._before is _MISSING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


class PatchSet:
    """Patches that are undone together, the last one first."""

    def __init__(self) -> None:
        self._patches: list[MethodPatch] = []

    def wrap(self, owner: Any, name: str, around: Wrapper) -> None:
        """Run ``around(original, args, kwargs)`` in place of ``owner.name(...)``."""
        self._patches.append(MethodPatch(owner, name, around))

    def undo(self) -> None:
        """Put everything back; it can be called again."""
        while self._patches:
            self._patches.pop().undo()
