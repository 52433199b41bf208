"""A batch that cannot be made at once: each image of it alone, as it would have come out in the batch.

The webui (v1.10.1) draws noise by each image's own seed, reads prompts one by one, and finds everything else of an
image by ``iteration × batch_size + place``; so an image is the same in a batch of one. Only where the prompts of a
batch differ in length by more than 75 tokens does it lengthen the short ones, which it does not do for an image alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...errors import SpillwayError
from .rescue import fresh_noise
from .run import Run

_STOPPED = "The user stopped it before it was begun."
_BY_IMAGE = (
    "prompts", "negative_prompts", "seeds", "subseeds", "hr_prompts", "hr_negative_prompts", "c", "uc", "hr_c", "hr_uc",
    "init_latent", "image_conditioning",
)  # fmt: skip
"""The fields of the webui's processing object that have a row for each image of the batch."""


@contextmanager
def one_image(p: Any, place: int) -> Iterator[None]:
    """The processing object as if its images were asked for in batches of one, at the one at this place."""
    fields, size = vars(p), len(p.seeds)
    changed = {name: row_of(fields[name], place, size) for name in _BY_IMAGE if name in fields}
    changed.update(iteration=p.iteration * p.batch_size + place, batch_size=1)
    before = {name: fields[name] for name in (*changed, "rng")}
    fields.update(changed)
    p.rng = fresh_noise(p.rng, p.seeds, p.subseeds)
    try:
        yield
    finally:
        fields.update(before)


def row_of(value: Any, place: int, size: int) -> Any:
    """The part of a value that belongs to one of ``size`` images; what has no row for each of them is for all."""
    if isinstance(value, torch.Tensor):
        return value[place : place + 1] if value.dim() > 0 and value.shape[0] == size else value
    if isinstance(value, (list, tuple)):
        return value[place : place + 1] if len(value) == size else value
    rows = getattr(value, "batch", None)  # prompts read for composition: MulticondLearnedConditioning
    return type(value)(shape=(1,), batch=rows[place : place + 1]) if isinstance(rows, list) else value


def each_alone(run: Run, make: Callable[[int], Any], stopped: Callable[[], bool]) -> list[Any]:
    """``make(place)``, the webui's samples of one image, for each image of the batch that is not lost yet; what cannot
    be made alone either is lost, and so is what the user stops before it is begun. ``None`` stands for a lost one."""
    parts: list[Any] = []
    lost: dict[int, str] = {}
    for place in range(len(run.seeds)):
        part = None
        if place not in run.batch.lost:
            try:
                part = make(place) if not parts or not stopped() else None
                lost.update({} if part is not None and _same_kind(parts, part) else {place: _STOPPED})
            except SpillwayError as error:
                lost[place] = str(error)
        parts.append(None if place in lost else part)
    run.lose(lost)
    return parts


def _same_kind(parts: Sequence[Any], part: Any) -> bool:
    """Whether this part can stand beside those made before it: stopped between its passes, an image is smaller."""
    other = next((made for made in parts if made is not None), part)
    return type(part) is type(other) and part[0].shape == other[0].shape


def joined(parts: Sequence[Any], dark: Sequence[torch.Tensor]) -> Any:
    """The batch, from the webui's samples of each image: latents, or its list of decoded pictures. What was not made
    is replaced by nothing (latents) or a dark picture.

    Args:
        parts: a batch of one for each image; at least one was made.
        dark: a picture for each.
    """
    first = next(part for part in parts if part is not None)
    if isinstance(first, torch.Tensor):
        return torch.cat([torch.zeros_like(first) if part is None else part for part in parts])
    return type(first)(dark[place] if part is None else part[0] for place, part in enumerate(parts))
