"""The plainest patches that can be taken back."""

from __future__ import annotations

import functools


class PlainPatches:
    """Fulfils :class:`~sd_webui_spillway.hosts.a1111.engine_port.Patches`."""

    def __init__(self) -> None:
        self._undo: list = []

    def wrap(self, owner, name, around) -> None:
        inherited = name not in vars(owner)
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(*args, **kwargs):
            return around(original, args, kwargs)

        setattr(owner, name, patched)
        self._undo.append((lambda: delattr(owner, name)) if inherited else (lambda: setattr(owner, name, original)))

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()
