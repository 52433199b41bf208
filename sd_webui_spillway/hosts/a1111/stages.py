"""Where the webui's work begins and ends: patches that time each stage and survive its running out of memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ...errors import SpillwayError
from ...recovery.method_patch import PatchSet
from .asked import final_size
from .one_by_one import each_alone, joined, one_image, row_of
from .rescue import FieldsBefore, dark_images
from .run import Run


class Watch(Protocol):
    """Knows the running job."""

    def running(self) -> Run | None:
        """The job that this thread runs, if any."""


class Stages:
    """Wraps the webui's own steps. Outside a job every patch passes through."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def install(self, patches: PatchSet) -> None:
        processing = importlib.import_module("modules.processing")
        base = processing.StableDiffusionProcessing
        text, image = processing.StableDiffusionProcessingTxt2Img, processing.StableDiffusionProcessingImg2Img
        patches.wrap(importlib.import_module("modules.sd_models"), "reload_model_weights", self._reload)
        patches.wrap(base, "parse_extra_network_prompts", self._begin_iteration)
        for owner in (base, text):
            patches.wrap(owner, "setup_conds", self._encode)
        patches.wrap(image, "init", self._init)
        for owner in (text, image):
            patches.wrap(owner, "sample", self._sample)
        patches.wrap(text, "sample_hr_pass", self._hires)
        patches.wrap(processing, "decode_latent_batch", self._decode)
        sampler = importlib.import_module("modules.sd_samplers_common").Sampler
        patches.wrap(sampler, "callback_state", self._step)

    def _reload(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The webui asks for the request's checkpoint before each iteration. Where it cannot be loaded any more, the
        loop ends as if no prompt were left, and the images of the iterations before come back."""
        run = self._watch.running()
        if run is None or not run.between_iterations:
            return original(*args, **kwargs)
        try:
            return run.guarded("Loading the checkpoint", lambda: original(*args, **kwargs), lambda: None)
        except SpillwayError as error:
            run.lose_rest(str(error))
        run.p.all_prompts = run.p.all_prompts[: run.p.iteration * run.p.batch_size]
        return None

    def _begin_iteration(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is not None and run.leads(args[0]):
            run.begin_iteration()
            self._heed_stop(run)
        return original(*args, **kwargs)

    def _encode(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The webui reads the prompts of a batch one by one, so a smaller batch would need no less."""
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        before = FieldsBefore(args[0])

        def give_up(because: str) -> None:
            before.restore()
            run.give_up(because)

        call = lambda: _timed(run, "encode", original, args, kwargs)  # noqa: E731
        return run.guarded("Encoding the prompt", call, before.restore, give_up if run.leads(args[0]) else None)

    def _init(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        before = FieldsBefore(args[0])
        call = lambda: _timed(run, "encode", original, args, kwargs)  # noqa: E731
        return run.guarded("Encoding the picture", call, before.restore)

    def _sample(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run, p = self._watch.running(), args[0]
        if run is None:
            return original(*args, **kwargs)
        leads = run.leads(p)
        if leads and run.batch.lost:
            return _placeholder(p)
        before = FieldsBefore(p)

        def restore() -> None:
            before.restore()
            _back_to_first_pass(p)

        def alone(because: str) -> Any:
            before.restore()
            return _sampled_alone(run, original, args, kwargs, because)

        call = lambda: _timed(run, "sample", original, args, kwargs)  # noqa: E731
        samples = run.guarded("Sampling", call, restore, alone if leads else None)
        if leads and not run.all_lost:
            _note_stop(run)
            if getattr(samples, "already_decoded", False):
                run.end_shared()
        return samples

    def _hires(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run, p = self._watch.running(), args[0]
        if run is None:
            return original(*args, **kwargs)
        before = FieldsBefore(p)

        def restore() -> None:
            before.restore()
            _merge_tokens(p)

        call = lambda: _timed(run, "hires", original, args, kwargs)  # noqa: E731
        return run.guarded("The second pass of hires fix", call, restore)

    def _decode(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        if not run.leads(run.p) or run.guarding or run.batch.finishing:
            return run.guarded("Decoding", lambda: _timed(run, "decode", original, args, kwargs), lambda: None)
        if run.batch.lost:  # the others were made one by one
            pixels = _decoded_alone(run, original, args, kwargs)
        else:
            pixels = run.guarded(
                "Decoding",
                lambda: _timed(run, "decode", original, args, kwargs),
                lambda: None,
                lambda because: _decoded_alone(run, original, args, kwargs, because),
            )
        run.end_shared()
        return pixels

    def _step(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is not None and not run.batch.finishing:
            self._heed_stop(run)
            steps, state = run.batch.steps, _state()
            steps.made, steps.count = steps.made + 1, max(state.sampling_steps, steps.made + 1)
            if not getattr(run.p, "is_hr_pass", False):
                steps.first_pass += 1
            run.observer.step(steps.made, steps.count)
        return original(*args, **kwargs)

    def _heed_stop(self, run: Run) -> None:
        if run.observer.stop_requested():
            _state().interrupt()


def _timed(
    run: Run, stage: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    steps = run.batch.steps
    if stage in ("sample", "hires"):
        steps.made, steps.running = 0, True
    try:
        with run.stage(stage):
            return original(*args, **kwargs)
    finally:
        if stage in ("sample", "hires"):
            steps.running = False


def _note_stop(run: Run) -> None:
    """Interrupt and skip end the sampling early; the webui decodes what there is."""
    steps = run.batch.steps
    if _is_stopped():
        run.stopped = True
        steps.stopped_at = steps.made


def _state() -> Any:
    return importlib.import_module("modules.shared").state


def _is_stopped() -> bool:
    state = _state()
    return bool(state.interrupted or state.skipped)


def _placeholder(p: Any) -> Any:
    """Dark images, in the webui's own list that says they are decoded already."""
    return importlib.import_module("modules.processing").DecodedSamples(_dark(p))


def _dark(p: Any) -> list[torch.Tensor]:
    return dark_images(len(p.prompts), *final_size(p))


def _sampled_alone(
    run: Run, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], because: str
) -> Any:
    """The batch's samples, each image's made alone after all at once could not be made."""
    p = run.p

    def make(place: int) -> Any:
        rows = [row_of(value, place, size) for value in args[1:]]
        named = {name: row_of(value, place, size) for name, value in kwargs.items()}

        def sample() -> Any:
            _back_to_first_pass(p)  # the image before may have gone on with a refiner
            return _timed(run, "sample", original, (p, *rows), named)

        with one_image(p, place):
            return run.guarded("Sampling", sample, FieldsBefore(p).restore)

    size = len(run.seeds)
    parts = _alone(run, make, because)
    return _placeholder(p) if run.all_lost else joined(parts, _dark(p))


def _decoded_alone(
    run: Run, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], because: str = ""
) -> Any:
    """The batch's pictures, each decoded in a call of its own. ``because`` says why they are not decoded in one."""
    model, latents, *rest = args

    def make(place: int) -> Any:
        call = lambda: _timed(run, "decode", original, (model, latents[place : place + 1], *rest), kwargs)  # noqa: E731
        return run.guarded("Decoding", call, lambda: None)

    parts = _alone(run, make, because)
    return _placeholder(run.p) if run.all_lost else joined(parts, _dark(run.p))


def _alone(run: Run, make: Callable[[int], Any], because: str) -> list[Any]:
    if len(run.seeds) == 1:
        run.give_up(because)
        return [None]
    if because:
        run.report("the batch could not be made at once: its images were made one by one")
    return each_alone(run, make, _is_stopped)


def _back_to_first_pass(p: Any) -> None:
    """What hires fix and a refiner change outside ``p``: the checkpoint, the networks in use, token merging."""
    importlib.import_module("modules.sd_models").reload_model_weights()
    _merge_tokens(p)
    if getattr(p, "enable_hr", False) and not p.disable_extra_networks:
        with importlib.import_module("modules.devices").autocast():
            importlib.import_module("modules.extra_networks").activate(p, p.extra_network_data)


def _merge_tokens(p: Any) -> None:
    importlib.import_module("modules.sd_models").apply_token_merging(p.sd_model, p.get_token_merging_ratio())
