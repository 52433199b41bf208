"""Loading a checkpoint that runs out of memory on the card: once more, into system memory.

The webui (v1.10.1, ``modules/sd_models.py``) loads weights straight onto the card where its models are to lie there
whole, and has already thrown away or half moved the model before when that fails. It does so when a person chooses a
checkpoint, before a request that overrides it (a cell of an X/Y/Z plot), between two images after a refiner, and inside
the sampling for a refiner or hires fix.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...errors import SpillwayError, first_line
from ...recovery.method_patch import PatchSet
from ...recovery.out_of_memory import is_out_of_memory


class CheckpointLoadError(SpillwayError):
    """A checkpoint does not fit, not even into system memory first."""


class Placements(Protocol):
    """What is asked of whoever places the models: see :class:`~.model_table.ModelTable`."""

    def places(self) -> bool:
        """Whether there is a card that we place on; if not, the host does as it always did."""

    def unsettle(self, model: Any) -> None:
        """Loading weights into this model was broken off: whole into system memory with it."""

    def loading_off_card(self, words: str) -> AbstractContextManager[None]:
        """Around a second try, because of ``words``: every model rests, and the host is told that none belongs on the
        card."""


class CheckpointLoads:
    """Wraps the webui's two functions; the outer one calls the inner one through its module."""

    def __init__(self, placements: Placements) -> None:
        self._placements = placements

    def install(self, patches: PatchSet) -> None:
        from modules import sd_models

        patches.wrap(sd_models, "load_model", self._load)
        patches.wrap(sd_models, "reload_model_weights", self._reload)

    def _load(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Its second argument is what was read from the file, which the first try has emptied."""
        checkpoint = args[0] if args else kwargs.get("checkpoint_info")
        return self._tried(lambda: original(*args, **kwargs), lambda: original(checkpoint))

    def _reload(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def again() -> Any:
            from modules import sd_models

            half_loaded = sd_models.model_data.sd_model
            if half_loaded is not None:
                self._placements.unsettle(half_loaded)
            info = args[1] if len(args) > 1 else kwargs.get("info")
            return original(half_loaded, info, forced_reload=True)

        return self._tried(lambda: original(*args, **kwargs), again)

    def _tried(self, load: Callable[[], Any], again: Callable[[], Any]) -> Any:
        loaded, words = _attempt(load)
        if words is None or not self._placements.places():
            return loaded
        with self._placements.loading_off_card(words):
            loaded, words = _attempt(again)
        if words is not None:
            raise CheckpointLoadError(
                "The checkpoint could not be loaded: memory ran out, and again with every model off the card.",
                detail=words,
            )
        return loaded


def _attempt(load: Callable[[], Any]) -> tuple[Any, str | None]:
    """The result, or in one line why it ran out of memory."""
    try:
        return load(), None
    except SpillwayError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None, first_line(error)
