"""The webui's answer when images could not be made: without what stands for them, or with something sensible there."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from .asked import final_size

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


def with_stand_ins(arguments: dict[str, Any], outcomes: Mapping[tuple[int, int], bool]) -> dict[str, Any]:
    """The arguments of the webui's ``Processed``, by name, with every image in its place, as scripts need that lay
    answers side by side. For what was not made stands the picture it began from, so that a tile stays as it was and a
    loop goes on from where it is; where there was none, a dark one."""
    grids, made = arguments.get("index_of_first_image", 0), list(outcomes.values())
    images = list(arguments["images_list"])
    if not made or (len(images) - grids) % len(made):
        return arguments
    pictures_per_image = (len(images) - grids) // len(made)
    for index, ((_, place), was_made) in enumerate(outcomes.items()):
        if not was_made:
            at = grids + index * pictures_per_image
            images[at] = _stand_in(arguments["p"], place, images[at])
    return {**arguments, "images_list": images}


def answer_without_images(p: Any, *, keeps_places: bool) -> Any:
    """The webui's ``Processed`` of a request that ended before an image was begun, with stand-ins if wanted."""
    processing = importlib.import_module("modules.processing")
    count = p.n_iter * p.batch_size if keeps_places else 0
    dark = Image.new("RGB", final_size(p))
    images = [_stand_in(p, number % p.batch_size, dark) for number in range(count)]
    text = processing.create_infotext(p, p.all_prompts, p.all_seeds, p.all_subseeds)
    return processing.Processed(p, images, seed=p.all_seeds[0], info=text, infotexts=[text] * len(images))


def _stand_in(p: Any, place: int, dark: Image.Image) -> Image.Image:
    began_from: Sequence[Image.Image] | None = getattr(p, "init_images", None)
    if not began_from:
        return dark
    return began_from[min(place, len(began_from) - 1)].convert(dark.mode).resize(dark.size)


def _kept(items: Sequence[Any], made: Sequence[bool], group: int = 1) -> list[Any]:
    return [item for index, item in enumerate(items) if made[index // group]]
