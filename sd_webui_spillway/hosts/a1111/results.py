"""The webui's answer without the pictures that stand for images which could not be made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PER_IMAGE = ("all_prompts", "all_negative_prompts", "all_seeds", "all_subseeds")


def without_lost(
    arguments: dict[str, Any], outcomes: Mapping[tuple[int, int], bool], batch_size: int
) -> dict[str, Any]:
    """The arguments of the webui's ``Processed``, by name, with what was not made taken out of every list.

    ``outcomes`` says by iteration and place in the batch, in the order of the images, which were made. Masks that the
    webui lists beside an image go with it; a grid stays, with a dark cell, unless nothing was made. Where the lists
    are not as the webui fills them, they are left as they are.
    """
    grids = arguments.get("index_of_first_image", 0)
    images, texts = list(arguments["images_list"]), list(arguments["infotexts"])
    made = list(outcomes.values())
    if not made or len(texts) - grids != len(made) or (len(images) - grids) % len(made):
        return arguments
    if not any(made):
        return {**arguments, "images_list": [], "infotexts": [], "index_of_first_image": 0}
    pictures_per_image = (len(images) - grids) // len(made)
    kept = {iteration * batch_size + place for (iteration, place), was_made in outcomes.items() if was_made}
    kept_texts = texts[:grids] + _kept(texts[grids:], made)
    changed = {
        **arguments,
        "images_list": images[:grids] + _kept(images[grids:], made, pictures_per_image),
        "infotexts": kept_texts,
        "info": kept_texts[0],
    }
    p = arguments["p"]
    for name in _PER_IMAGE:
        values = arguments.get(name) or getattr(p, name)
        changed[name] = [value for index, value in enumerate(values) if index in kept]
    changed["seed"], changed["subseed"] = changed["all_seeds"][0], changed["all_subseeds"][0]
    return changed


def _kept(items: Sequence[Any], made: Sequence[bool], group: int = 1) -> list[Any]:
    return [item for index, item in enumerate(items) if made[index // group]]
