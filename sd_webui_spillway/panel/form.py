"""From what stands in the form's fields to a request, with one sentence for each thing that cannot be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import BadInputError
from ..host_port import MAX_SEED, ImageRequest

FIELDS = (
    "prompt", "negative_prompt", "width", "height", "steps", "sampler", "guidance_scale", "seed", "batch_size",
    "batch_count",
)
"""The form's fields, in the order in which the panel hands over their values."""


def request_from(values: Mapping[str, Any], random_seed: int) -> ImageRequest:
    """The request that the fields spell; a seed of -1 becomes ``random_seed``.

    Raises:
        BadInputError: a field is empty or holds no usable number, or the request makes no sense.
    """
    seed = whole("seed", values["seed"])
    return ImageRequest(
        prompt=str(values.get("prompt") or ""),
        negative_prompt=str(values.get("negative_prompt") or ""),
        width=whole("width", values["width"]),
        height=whole("height", values["height"]),
        steps=whole("steps", values["steps"]),
        sampler=str(values.get("sampler") or "default"),
        guidance_scale=number("guidance scale", values["guidance_scale"]),
        seed=random_seed % (MAX_SEED + 1) if seed == -1 else seed,
        batch_size=whole("batch size", values["batch_size"]),
        batch_count=whole("batch count", values["batch_count"]),
    ).validated()


def number(name: str, value: Any) -> float:
    """A finite number.

    Raises:
        BadInputError: it is none.
    """
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise BadInputError(f"The {name} must be a number; type one.") from None
    if not math.isfinite(found):
        raise BadInputError(f"The {name} must be a finite number.")
    return found


def whole(name: str, value: Any) -> int:
    """A whole number.

    Raises:
        BadInputError: it is none.
    """
    found = number(name, value)
    if found != int(found):
        raise BadInputError(f"The {name} must be a whole number, not {found:g}.")
    return int(found)
