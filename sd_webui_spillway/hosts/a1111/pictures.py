"""Where the webui's images are described, saved and listed: patches that make an image record of each."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from typing import Any

from ...recovery.method_patch import PatchSet
from .infotext import without_entries
from .results import with_stand_ins, without_lost
from .run import Run
from .series import SeriesWatch
from .stages import Watch


class Pictures:
    """Wraps what the webui does with finished images. Outside a job every patch passes through."""

    def __init__(self, watch: Watch, series: SeriesWatch) -> None:
        self._watch = watch
        self._series = series

    def install(self, patches: PatchSet) -> None:
        processing = importlib.import_module("modules.processing")
        patches.wrap(processing, "create_infotext", self._describe)
        patches.wrap(importlib.import_module("modules.images"), "save_image", self._save)
        patches.wrap(processing.Processed, "__init__", self._list)
        patches.wrap(processing.Processed, "js", self._answer)

    def _describe(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        place = _place_described(run, _named(original, args, kwargs))
        if place is not None:
            run.end_shared()
        with run.describing(place):
            text = original(*args, **kwargs)
        if place is not None and not run.p.save_samples():
            run.finish(place, None)  # nothing more is done for an image that is not saved
        return text

    def _save(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        named = _named(original, args, kwargs)
        if run.finishing_lost and run.leads(named.get("p")) and not named.get("grid"):
            return None, None  # the webui does not look at it
        run.observer.stage("save")
        if not _is_finished_image(run, named):
            info = named.get("info")
            if isinstance(info, str):
                args, kwargs = (), {**named, "info": without_entries(info)}
            with run.batch.stage("save"):
                return original(*args, **kwargs)
        with run.batch.stage("save"):
            saved = original(*args, **kwargs)
        run.finish(run.p.batch_index, saved[0])
        return saved

    def _list(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self._watch.running()
        if run is None:
            return original(*args, **kwargs)
        named = _named(original, args, kwargs)
        if not run.leads(named.get("p")) or not named.get("infotexts"):
            return original(*args, **kwargs)
        made = without_lost(named, run.outcomes, run.p.batch_size) if run.told.losses else named
        grids = made.get("index_of_first_image", 0)
        run.images, run.infotexts = list(made["images_list"][grids:]), list(made["infotexts"][grids:])
        if not run.told.losses:
            return original(*args, **kwargs)
        series = self._series.current()
        answer = with_stand_ins(named, run.outcomes) if series is not None and series.keeps_places else made
        return original(args[0], **{name: value for name, value in answer.items() if name != "self"})

    def _answer(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The API answers with this text alone, so what a person should read is put into it."""
        text = original(*args, **kwargs)
        notices = getattr(args[0], "spillway_notices", ())
        if not notices:
            return text
        return json.dumps({**json.loads(text), "spillway": {"notices": list(notices)}})


def _named(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name; only as keywords where another extension hides the signature."""
    try:
        named = dict(inspect.signature(original).bind(*args, **kwargs).arguments)
    except TypeError:
        return dict(kwargs)
    extra = named.pop("kwargs", {})
    return {**named, **extra}


def _place_described(run: Run, named: dict[str, Any]) -> int | None:
    """The place in the batch, where the webui describes an image of it that is finished.

    It does so with the seeds of the batch; pictures before hires fix, grids and ``params.txt`` are described with
    those of the whole request, before the pixels are there, or by the main prompt.
    """
    index: int | None = named.get("index")
    seeds = run.p.seeds
    if not run.leads(named.get("p")) or named.get("use_main_prompt") or index is None or seeds is None:
        return None
    return index if index < len(seeds) and named.get("all_seeds") is seeds else None


def _is_finished_image(run: Run, named: dict[str, Any]) -> bool:
    if not run.leads(named.get("p")) or not run.batch.finishing or named.get("grid") or named.get("suffix"):
        return False
    return named.get("path") == run.p.outpath_samples and named.get("forced_filename") is None
