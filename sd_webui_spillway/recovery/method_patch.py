"""Replace one method of one object, and put it back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..errors import UnavailableError

Wrapper = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
_MISSING = object()


class MethodPatch:
    """``around(original, args, kwargs)`` runs in place of ``owner.name(...)`` until :meth:`undo`.

    Only the instance is touched; its class, and other instances, are not. The signature stays visible.
    """

    def __init__(self, owner: Any, name: str, around: Wrapper) -> None:
        self._owner = owner
        self._name = name
        self._before = vars(owner).get(name, _MISSING)
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(*args: Any, **kwargs: Any) -> Any:
            return around(original, args, kwargs)

        self._patched = patched
        setattr(owner, name, patched)

    def undo(self) -> None:
        """Put back what was there. A second time does nothing.

        Raises:
            UnavailableError: somebody patched over it since; undoing now would lose their patch.
        """
        current = vars(self._owner).get(self._name, _MISSING)
        if current is self._before:
            return
        if current is not self._patched:
            raise UnavailableError(
                f"The patch on {type(self._owner).__name__}.{self._name} cannot be undone, because another one "
                "was put over it."
            )
        if self._before is _MISSING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
