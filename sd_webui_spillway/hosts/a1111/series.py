"""Requests whose answers belong together: those of one run of a script, or of a folder of pictures."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import SpillwayError, first_line
from ...recovery.method_patch import PatchSet
from ...recovery.out_of_memory import is_out_of_memory

logger = logging.getLogger(__name__)

HEED_MISSING_IMAGES = ("xyz_grid", "prompts_from_file")
"""The webui's scripts (v1.10.1) that take an answer with fewer images than they asked for, or none, as it is meant. The
others lay the answers beside one another by their order: a tile less would shift all that follow it, and no image at
all is an IndexError."""


class NothingMadeError(SpillwayError):
    """Not one image of a request could be made."""


class Series:
    """What came of its requests so far."""

    def __init__(self, *, keeps_places: bool) -> None:
        """``keeps_places``: each request is to answer with as many images as it asked for."""
        self.keeps_places = keeps_places
        self.images: list[Any] = []
        self.infotexts: list[str] = []
        self.said: list[str] = []

    def add(self, images: list[Any], infotexts: list[str], said: list[str]) -> None:
        """A request ended: what it made, and what a person should read."""
        self.images += images
        self.infotexts += infotexts
        self.said += [sentence for sentence in said if sentence not in self.said]

    def answer(self, p: Any) -> Any:
        """The webui's ``Processed`` of what was made."""
        return importlib.import_module("modules.processing").Processed(
            p, self.images, seed=p.seed, info=next(iter(self.infotexts), ""), infotexts=self.infotexts
        )


class SeriesWatch:
    """Wraps what runs several requests. A series that ends in an error because memory ran out answers with what it
    made, and every one says what became of its requests."""

    def __init__(self) -> None:
        self._current: Series | None = None
        self._thread: int | None = None

    def install(self, patches: PatchSet) -> None:
        patches.wrap(importlib.import_module("modules.scripts").ScriptRunner, "run", self._script)
        patches.wrap(importlib.import_module("modules.img2img"), "process_batch", self._folder)

    def current(self) -> Series | None:
        """The series that this thread runs, if any."""
        return self._current if self._thread == threading.get_ident() else None

    def _script(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        runner, p, *arguments = args
        if not arguments or not arguments[0]:  # the number of the script that was chosen
            return original(*args, **kwargs)
        script = runner.selectable_scripts[arguments[0] - 1]
        heeds = Path(getattr(script, "filename", None) or "").stem in HEED_MISSING_IMAGES
        return self._run(p, lambda: original(*args, **kwargs), keeps_places=not heeds)

    def _folder(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        p = args[0] if args else kwargs["p"]
        return self._run(p, lambda: original(*args, **kwargs), keeps_places=False)

    def _run(self, p: Any, work: Callable[[], Any], *, keeps_places: bool) -> Any:
        if self.current() is not None:  # a script for each picture of a folder
            return work()
        series = Series(keeps_places=keeps_places)
        with self._as_current(series):
            try:
                processed, error = work(), None
            except Exception as raised:
                if not (series.said or isinstance(raised, SpillwayError) or is_out_of_memory(raised)):
                    raise
                logger.exception("what asked for several images ended early")
                processed, error = None, first_line(raised)
            if error is not None:
                series.said.append(f"It ended early: {error}")
                processed = series.answer(p)
        if not series.images and (error is not None or getattr(p, "is_api", False)) and series.said:
            raise NothingMadeError(" ".join(series.said))
        return _with_sentences(processed, series.said)

    @contextmanager
    def _as_current(self, series: Series) -> Iterator[None]:
        self._current, self._thread = series, threading.get_ident()
        try:
            yield
        finally:
            self._current = self._thread = None


def _with_sentences(processed: Any, said: list[str]) -> Any:
    """The last answer carries them all: a script may have made it of a copy of what was asked."""
    if processed is not None and said:
        missing = [sentence for sentence in said if sentence not in processed.comments]
        processed.comments += "".join(f"{sentence}\n" for sentence in missing)
        processed.spillway_notices = tuple(said)
    return processed
