"""Out-of-memory outside the guarded calls (an upscaler, a sampler's own tensors): make room and call once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ...errors import SpillwayError, first_line
from ...recovery.out_of_memory import is_out_of_memory
from ...recovery.random_state import RandomState

_T = TypeVar("_T")


class OutOfRoomError(SpillwayError):
    """Memory ran out, and again after room had been made."""


def call_with_room(
    call: Callable[[], _T], what: str, make_room: Callable[[], str | None], before_retry: Callable[[], None]
) -> _T:
    """``call()``; where it runs out of memory, once more after :func:`make_room` and ``before_retry``.

    Args:
        call: what to do; it must be repeatable after ``before_retry``.
        what: its name at the start of a sentence ("Sampling").
        make_room: frees memory on the card, and says in words what it did.
        before_retry: puts back what the failed call changed.

    Raises:
        OutOfRoomError: it ran out again. A :class:`~...errors.SpillwayError` of the call itself passes: whoever
            raised it has tried everything already.
    """
    random = RandomState()
    made, words = _attempt(call)
    if words is None:
        return made[0]
    # Outside the except block: the traceback, and with it the call's tensors, is gone.
    make_room()
    random.restore()
    before_retry()
    made, again = _attempt(call)
    if again is not None:
        raise OutOfRoomError(f"{what} ran out of memory, and again after room was made.", detail=again)
    return made[0]


def _attempt(call: Callable[[], _T]) -> tuple[list[_T], str | None]:
    """The result in a list, or what to keep of an out-of-memory: its words."""
    try:
        return [call()], None
    except SpillwayError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return [], first_line(error)


class FieldsBefore:
    """The fields of the webui's processing object, to be put back before a call is repeated or given up."""

    def __init__(self, p: Any) -> None:
        self._p = p
        self._fields = dict(vars(p))

    def restore(self) -> None:
        """Put every field back, with a fresh generator of the same noise."""
        fields = vars(self._p)
        fields.clear()
        fields.update(self._fields)
        noise = fields.get("rng")
        if noise is not None:
            self._p.rng = fresh_noise(noise, noise.seeds, noise.subseeds)


def fresh_noise(noise: Any, seeds: Any, subseeds: Any) -> Any:
    """The webui's ``ImageRNG`` of these seeds, from the beginning."""
    return type(noise)(
        noise.shape,
        seeds,
        subseeds=subseeds,
        subseed_strength=noise.subseed_strength,
        seed_resize_from_h=noise.seed_resize_from_h,
        seed_resize_from_w=noise.seed_resize_from_w,
    )


def dark_images(count: int, width: int, height: int) -> list[torch.Tensor]:
    """Black pictures as the webui's decoder returns them: (3, height, width), from -1 to 1, in system memory."""
    return [torch.full((3, height, width), -1.0) for _ in range(count)]
