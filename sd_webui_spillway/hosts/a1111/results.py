"""The webui's answer: with our sentences, and without the dark images that stand for those that could not be made."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from .run import NothingMadeError, Run

_PER_IMAGE = ("all_prompts", "all_negative_prompts", "all_seeds", "all_subseeds")


def without_placeholders(
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
    if all(made) or len(texts) - grids != len(made) or (len(images) - grids) % len(made):
        return arguments
    if not any(made):
        return {**arguments, "images_list": [], "infotexts": [], "index_of_first_image": 0}
    pictures_per_image = (len(images) - grids) // len(made)
    lost = {iteration * batch_size + place for (iteration, place), was_made in outcomes.items() if not was_made}
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
        changed[name] = [value for index, value in enumerate(values) if index not in lost]
    changed["seed"], changed["subseed"] = changed["all_seeds"][0], changed["all_subseeds"][0]
    return changed


def _kept(items: Sequence[Any], made: Sequence[bool], group: int = 1) -> list[Any]:
    return [item for index, item in enumerate(items) if made[index // group]]


def answered(run: Run, processed: Any) -> Any:
    """The webui's answer with our sentences in it.

    Raises:
        NothingMadeError: nothing at all could be made, and a program asked. A script (an X/Y/Z plot) gets an empty
            answer instead, since it may have images of earlier calls; so does a person, with the sentence below it.
    """
    processed.spillway_notices = tuple(run.said)
    if run.nothing_made and _is_program(run.p):
        raise NothingMadeError(" ".join(run.losses))
    return processed


def nothing_made(p: Any, sentence: str) -> Any:
    """The webui's answer to a request that nothing was tried for: as :func:`answered`.

    Raises:
        NothingMadeError: a program asked.
    """
    if _is_program(p):
        raise NothingMadeError(sentence)
    p.comment(sentence)
    processed = importlib.import_module("modules.processing").Processed(p, [], p.seed)
    processed.spillway_notices = (sentence,)
    return processed


def _is_program(p: Any) -> bool:
    """Whether nobody but a program reads the answer. The first of the script arguments is the number of the script that
    was chosen, 0 for none."""
    arguments = p.script_args
    return bool(getattr(p, "is_api", False)) and not (bool(arguments) and bool(arguments[0]))
