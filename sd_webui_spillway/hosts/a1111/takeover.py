"""The host's own moves of a model, handed to us while the extension is on.

The host places its models in ``modules.lowvram`` and moves them whole in ``modules.sd_models`` (v1.10.1, lines
735–765). Its ``lowvram`` sets hooks up once and never takes them off, so profiles could not change; and any of its
moves would pull a model back that we have placed. Each is therefore answered by the attachment of that model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from ...errors import first_line
from ...recovery.method_patch import PatchSet, Wrapper
from ...recovery.out_of_memory import is_out_of_memory

logger = logging.getLogger(__name__)
_HOST_HOOK = "setup_for_low_vram.<locals>.send_me_to_gpu"


class Placements(Protocol):
    """What the takeover asks: see :class:`~.host.A1111Host`."""

    def places(self) -> bool:
        """Whether there is a card that we place on; if not, the host does as it always did."""

    def keeps_off_card(self) -> bool:
        """Whether a model is to rest in system memory between its calls."""

    def attach(self, model: Any) -> None:
        """The host has loaded a model, or wants one back on the card."""

    def detach(self, model: Any) -> None:
        """The host is about to change a model or a part of it, to put it aside or to throw it away."""

    def rest(self) -> None:
        """The host wants the card free between two pieces of work."""

    def load_out_of_memory(self, model: Any, words: str) -> None:
        """Moving a model to the card ran out of memory: it is to be kept off the card instead."""


def install(patches: PatchSet, placements: Placements) -> None:
    """Answer the host's moves from now on, until the patches are undone."""
    from modules import lowvram, sd_hijack_open_clip, sd_models, sd_vae

    def is_needed(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return placements.keeps_off_card() if placements.places() else bool(original(*args, **kwargs))

    def apply(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not placements.places():
            original(*args, **kwargs)
            return
        mark(args[0] if args else kwargs["sd_model"], off_card=placements.keeps_off_card())

    def send_everything_to_cpu(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        original(*args, **kwargs)
        placements.rest()

    def before(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        model = args[0] if args else kwargs.get("m", kwargs.get("model"))
        if model is not None:
            placements.detach(model)
        return original(*args, **kwargs)

    patches.wrap(
        sd_hijack_open_clip.FrozenOpenCLIPEmbedderWithCustomWords, "encode_embedding_init_text", _look_up
    )
    patches.wrap(lowvram, "is_needed", is_needed)
    patches.wrap(lowvram, "apply", apply)
    patches.wrap(lowvram, "send_everything_to_cpu", send_everything_to_cpu)
    patches.wrap(sd_models, "send_model_to_cpu", before)
    patches.wrap(sd_models, "send_model_to_trash", before)
    patches.wrap(sd_vae, "load_vae", before)  # it keeps a copy of the model's own VAE, wherever that is
    patches.wrap(sd_models, "send_model_to_device", _sending(placements))


def _sending(placements: Placements) -> Wrapper:
    from modules import sd_models

    def send_model_to_device(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not placements.places():
            original(*args, **kwargs)
            return
        model = args[0] if args else kwargs["m"]
        failure = _out_of_memory(lambda: original(*args, **kwargs))
        if failure is not None:
            placements.load_out_of_memory(model, failure)
        if model in sd_models.model_data.loaded_sd_models:  # a model that is only being made is not whole yet
            placements.attach(model)

    return send_model_to_device


def _look_up(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The host reads SD 2's table of words with indices on its device, before the model is placed and at other times
    when the table rests in system memory."""
    table = args[0].wrapped.model.token_embedding.wrapped
    hook = table.register_forward_pre_hook(lambda layer, words: tuple(one.to(layer.weight.device) for one in words))
    try:
        return original(*args, **kwargs)
    finally:
        hook.remove()


def _out_of_memory(work: Callable[[], Any]) -> str | None:
    """Do it; in one line why it ran out of memory, or ``None`` where it did not."""
    try:
        work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return first_line(error)
    return None


def mark(model: Any, *, off_card: bool) -> None:
    """Tell the host's own code whether this model may be moved to the card whole, and whether live previews may be
    decoded beside the sampling."""
    from modules import shared

    model.lowvram = off_card
    shared.parallel_processing_allowed = not off_card


def take_from_host(model: Any) -> None:
    """Undo what the host's ``--medvram`` or ``--lowvram`` did to a model, so that it rests whole in system memory."""
    from modules import devices, lowvram

    if not getattr(model, "lowvram", False):
        return
    lowvram.send_everything_to_cpu()
    for module in model.modules():
        hooks = module._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if getattr(hook, "__qualname__", "").endswith(_HOST_HOOK)]:
            del hooks[key]
    for name in ("encode", "decode"):
        vars(model.first_stage_model).pop(name, None)
    model.to(devices.cpu)
    model.lowvram = False


def give_back_to_host(model: Any) -> None:
    """Place a model as the host's own start-up flags say, as if it had just been loaded, or with one part of it on the
    card at a time where the whole does not fit."""
    from modules import devices, lowvram, sd_models

    wrapper = getattr(model, "cond_stage_model", None)
    inner = getattr(wrapper, "wrapped", None)
    bare = any(hasattr(inner, name) and not hasattr(wrapper, name) for name in ("transformer", "model"))
    model.lowvram = False
    try:
        if bare:
            model.cond_stage_model = inner  # the host looks for the encoder there, before it puts its wrapper around it
        failure = _out_of_memory(lambda: sd_models.send_model_to_device(model))
        if failure is not None:
            logger.warning("the model does not fit on the card (%s): the webui places it as under --medvram", failure)
            model.to(devices.cpu)
            mark(model, off_card=True)
            model.lowvram = False  # or the host takes its hooks for set up
            lowvram.setup_for_low_vram(model, True)
    finally:
        if bare:
            model.cond_stage_model = wrapper
