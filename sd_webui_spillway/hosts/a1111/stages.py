"""Where the webui's work begins and ends: patches that time each stage and survive its running out of memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from ...recovery.method_patch import PatchSet
from .asked import final_size
from .rescue import FieldsBefore, dark_images
from .run import Run
from .token_merging import merge_tokens


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

    def _begin_iteration(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is not None and run.leads(args[0]):
            run.begin_iteration()
            self._heed_stop(run)
        return original(*args, **kwargs)

    def _encode(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        before = FieldsBefore(args[0])
        return run.guarded(
            "Encoding the prompt",
            lambda: _timed(run, "encode", original, args, kwargs),
            before.restore,
            (lambda: None) if run.leads(args[0]) else None,
        )

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
        if leads and run.batch.failure is not None:
            return _placeholder(p)
        before = FieldsBefore(p)

        def restore() -> None:
            before.restore()
            _back_to_first_pass(p)

        call = lambda: _timed(run, "sample", original, args, kwargs)  # noqa: E731
        samples = run.guarded("Sampling", call, restore, (lambda: _placeholder(p)) if leads else None)
        if leads and run.batch.failure is None:
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
            merge_tokens(p)

        call = lambda: _timed(run, "hires", original, args, kwargs)  # noqa: E731
        return run.guarded("The second pass of hires fix", call, restore)

    def _decode(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        last = run.leads(run.p) and not run.guarding and not run.batch.finishing
        call = lambda: _timed(run, "decode", original, args, kwargs)  # noqa: E731
        pixels = run.guarded(
            "Decoding", call, lambda: None, (lambda: _placeholder(run.p)) if last else None
        )
        if last:
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
        if stage == "sample":
            steps.first_pass = 0
    try:
        with run.stage(stage):
            return original(*args, **kwargs)
    finally:
        if stage in ("sample", "hires"):
            steps.running = False


def _note_stop(run: Run) -> None:
    """Interrupt and skip end the sampling early; the webui decodes what there is."""
    state, steps = _state(), run.batch.steps
    if state.interrupted or state.skipped:
        run.stopped = True
        steps.stopped_at = steps.made


def _state() -> Any:
    return importlib.import_module("modules.shared").state


def _placeholder(p: Any) -> Any:
    """Dark images, in the webui's own list that says they are decoded already."""
    processing = importlib.import_module("modules.processing")
    width, height = final_size(p)
    return processing.DecodedSamples(dark_images(len(p.prompts), width, height))


def _back_to_first_pass(p: Any) -> None:
    """What hires fix and a refiner change outside ``p``: the checkpoint, the networks in use, token merging."""
    importlib.import_module("modules.sd_models").reload_model_weights()
    merge_tokens(p)
    if getattr(p, "enable_hr", False) and not p.disable_extra_networks:
        with importlib.import_module("modules.devices").autocast():
            importlib.import_module("modules.extra_networks").activate(p, p.extra_network_data)
