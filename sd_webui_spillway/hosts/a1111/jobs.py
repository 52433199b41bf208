"""Every ``process_images`` of the webui as a job of the session: timed, logged, and finished whatever happens."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ...errors import SpillwayError
from ...recovery.method_patch import PatchSet
from ...session import Session
from .asked import request_of
from .engine_port import Engine
from .faces import Faces
from .lora_errors import LoraErrors
from .pictures import Pictures
from .results import answer_without_images
from .run import Run
from .series import NothingMadeError, SeriesWatch
from .stages import Stages
from .unharmed import Unharmed
from .warmth import Warmth
from .xyz import cap_asked


class JobWatch:
    """txt2img, img2img, each cell of an X/Y/Z plot, each file of a batch folder, each request of the API.

    Where no job can be had (the session is busy or closed, the models cannot be placed), the webui works on as if
    nothing watched it, and the reason is logged once.
    """

    def __init__(self, session: Session, engine: Engine) -> None:
        self._session = session
        self._engine = engine
        self._run: Run | None = None
        self._thread: int | None = None
        self._warmth = Warmth()
        self._lora = LoraErrors()
        self._series = SeriesWatch()
        self._patches: PatchSet | None = None
        self._unharmed = Unharmed()

    def install(self, patches: PatchSet) -> None:
        """Wrap the webui's functions; ``patches`` takes them back."""
        self._patches = patches
        for part in (Stages(self), Pictures(self, self._series), Faces(self), self._lora, self._series):
            part.install(patches)
        patches.wrap(importlib.import_module("modules.processing"), "process_images_inner", self._process)
        self._engine.whereabouts = self.whereabouts

    def running(self) -> Run | None:
        """The job that this thread runs, if any."""
        return self._run if self._thread == threading.get_ident() else None

    def whereabouts(self) -> str:
        """Where in the running job the work is, for the words of a rung: "at step 14 of 30"."""
        run = self._run
        steps = run.batch.steps if run else None
        under_way = steps is not None and steps.running and steps.made < steps.count
        return f"at step {steps.made + 1} of {steps.count}" if steps and under_way else ""

    def _process(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer = self.running()
        if outer is not None:
            with outer.joined():
                return original(*args, **kwargs)
        stack = ExitStack()
        run = self._begin(args[0] if args else kwargs["p"], stack)
        if run is None:
            return original(*args, **kwargs)
        processed, error = None, None
        try:
            processed = original(*args, **kwargs)
        except BaseException as raised:
            error = raised
            if not self._answers(run, raised):
                raise
        finally:
            self._end(run, stack, error)
            del error  # a traceback and its tensors would outlive the job
        return self._answered(run, processed)

    def _answers(self, run: Run, error: BaseException) -> bool:
        """Whether an answer without images stands for this error: the other requests of a series are to go on."""
        return self._series.current() is not None and isinstance(error, SpillwayError) and bool(run.p.all_seeds)

    def _answered(self, run: Run, processed: Any) -> Any:
        """The webui's answer with our sentences in it.

        Raises:
            NothingMadeError: nothing at all could be made, and a program asked for this alone. A series gets an answer
                without images instead, since it has other requests; so does a person, with the sentence below it.
        """
        p, series = run.p, self._series.current()
        said = run.told.said
        if processed is None:
            processed = answer_without_images(p, keeps_places=series is not None and series.keeps_places)
        if series is not None:
            series.add(run.images, run.infotexts, said)
        processed.spillway_notices = tuple(said)
        if series is None and run.nothing_made and getattr(p, "is_api", False):
            raise NothingMadeError(" ".join(run.told.losses))
        return processed

    def _begin(self, p: Any, stack: ExitStack) -> Run | None:
        run = None
        with self._unharmed("This request is made without Spillway, because no job can be begun"):
            run = self._open(p, stack)
        if run is None:
            self._close(stack)
            return None
        self._run, self._thread = run, threading.get_ident()
        return run

    def _open(self, p: Any, stack: ExitStack) -> Run:
        asked = getattr(p, "spillway_profile", None)
        request = request_of(p)
        _wait_for_loading()
        stack.enter_context(cap_asked(self._session, p))
        job = stack.enter_context(self._session.foreign_job(request, asked))
        profile = asked or self._session.settings.profile
        placement = stack.enter_context(self._engine.job(request, profile, job.tracker))
        if self._patches is not None:
            self._lora.install(self._patches)
        stack.enter_context(self._lora.watching())
        infotext = self._session.settings.infotext
        return Run(
            p, job, placement, self._engine, self._session.monitor, self._warmth, self._unharmed, infotext=infotext
        )

    def _end(self, run: Run, stack: ExitStack, error: BaseException | None) -> None:
        state = importlib.import_module("modules.shared").state
        with self._unharmed("The records of a request are not complete"):
            run.end(error, interrupted=bool(state.interrupted or state.stopping_generation))
        self._run = self._thread = None
        self._close(stack)

    def _close(self, stack: ExitStack) -> None:
        with self._unharmed("A job did not end well"):
            stack.close()


def _wait_for_loading() -> None:
    """The webui loads its first checkpoint in a thread of its own, and lets a request begin while the end of it still
    runs the text encoder; that is not to be placed anew meanwhile."""
    with importlib.import_module("modules.sd_models").model_data.lock:
        pass
