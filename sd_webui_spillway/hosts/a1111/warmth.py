"""Whether the model has run since it was loaded or moved: its first images are slower than the ones that follow."""

from __future__ import annotations

from typing import Any

from .engine_port import Engine


class Warmth:
    """Remembers the model that ran last, and how it lay."""

    def __init__(self) -> None:
        self._ran: tuple[int, str | None, str] | None = None

    def is_warm(self, p: Any, engine: Engine) -> bool:
        return self._ran == _state(p, engine)

    def ran(self, p: Any, engine: Engine) -> None:
        """A batch was made as the model lies now."""
        self._ran = _state(p, engine)


def _state(p: Any, engine: Engine) -> tuple[int, str | None, str]:
    return id(p.sd_model), p.sd_model_name, engine.profile_in_force()
