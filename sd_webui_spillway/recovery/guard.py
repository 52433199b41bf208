"""The guard: around every call of every component, an out-of-memory costs that one call and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from ..errors import SpillwayError, first_line
from ..placement.card import Card
from ..placement.component import Component
from ..placement.placed_model import PlacedModel
from ..placement.profile import Profile
from ..units import format_bytes
from .ladder import CallMemory, LadderSwitches, Rung, RungKind, can_tile, climb, step_down
from .method_patch import PatchSet
from .out_of_memory import is_out_of_memory, lacking_bytes
from .random_state import RandomState
from .row_split import call_by_rows, rows_of
from .tiled_vae import tiled_forward

logger = logging.getLogger(__name__)

_MOVES_TRIED = 3
"""How often the move to a smaller placement is taken up again after it ran out of memory itself."""


class LadderExhaustedError(SpillwayError):
    """A call does not fit however small it is made; the image it was for cannot be made."""


@dataclass(frozen=True)
class _Failure:
    """What is kept of an out-of-memory: words only. The exception itself would keep the call's tensors alive."""

    text: str
    used_bytes: int
    lacking_bytes: int | None
    rows: int | None

    @classmethod
    def of(cls, error: BaseException, card: Card, rows: int | None = None) -> _Failure:
        """What to keep of this error. Nothing of the call has been let go yet, so what is free now is not enough."""
        tried = lacking_bytes(error)
        lacking = max(0, tried - card.free_bytes()) if tried is not None else None
        return cls(first_line(error), card.used_bytes(), lacking, rows)


class Guard:
    """Wraps the calls of a placed model's components from :meth:`install` to :meth:`undo`.

    Samplers, schedulers, seeds and scripts never notice a recovery. Use :meth:`job` around each job: what the ladder
    changed holds until its end.
    """

    def __init__(
        self,
        model: PlacedModel,
        *,
        switches: LadderSwitches | None = None,
        on_rung: Callable[[Rung], None] = lambda rung: None,
        whereabouts: Callable[[], str] = lambda: "",
        whole_batch_because: Callable[[Component], str | None] = lambda component: None,
        takes_step_down: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            model: whose calls to guard.
            switches: rungs that the user allows; all of them by default.
            on_rung: told of each rung as it is taken.
            whereabouts: where in the job a call is ("at step 14 of 30"), for the words of a rung.
            whole_batch_because: why a component needs all its rows in one call (a ControlNet's hook), or ``None``.
            takes_step_down: whether the user asks for less on the card; asked before each call, and answered once.
        """
        self._model = model
        self._switches = switches or LadderSwitches()
        self._on_rung = on_rung
        self._whereabouts = whereabouts
        self._whole_batch_because = whole_batch_because
        self._takes_step_down = takes_step_down
        self._memory: dict[tuple[str, str], CallMemory] = {}
        self._patches: PatchSet | None = None
        self._inside: set[str] = set()
        """Components whose call is running: what a call calls of its own component is part of it."""

    def install(self) -> None:
        """Wrap every component's calls. A second time does nothing."""
        if self._patches is not None:
            return
        self._patches = PatchSet()
        for component in self._model.components:
            for call in component.calls:
                self._patches.wrap(component.module, call, self._wrapper(component, call))

    def undo(self) -> None:
        """Put every wrapped method back."""
        if self._patches is not None:
            self._patches.undo()
            self._patches = None

    @contextmanager
    def job(self) -> Iterator[None]:
        """Around a job: afterwards the placement is the one before, and what the ladder learnt is forgotten."""
        profile = self._model.profile
        try:
            yield
        finally:
            self.settle(profile)

    def settle(self, profile: Profile | None) -> None:
        """End a job: forget what the ladder learnt, and place the model so.

        Somebody else may have taken the memory meanwhile: then no placement is in force, or still the smaller one, and
        the job's images are not lost for it.
        """
        self._memory.clear()
        words = ""
        for _ in range(2):
            try:
                self._model.rest()
                if profile is not None:
                    self._model.switch(profile)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                words = first_line(error)
            else:
                return
            self._model.card.release_cached()
        logger.warning("the profile %s no longer fits after the job: %s", profile, words)

    def plan_tiled(self, component: Component, call: str) -> None:
        """Run this call in strips, if it can, from the start of the job, without failing first."""
        self._remembered(component, call).tiled = can_tile(component, call)

    def plan_rows(self, component: Component, call: str, rows: int, words: str = "") -> None:
        """Run this call with at most so many rows at once, from the start of the job, without failing first; say so in
        these words when it first does."""
        memory = self._remembered(component, call)
        memory.rows_per_call, memory.planned = max(1, rows), words

    def _wrapper(
        self, component: Component, call: str
    ) -> Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]:
        def guarded(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with self._model.turn:
                if component.name in self._inside:
                    return original(*args, **kwargs)
                self._inside.add(component.name)
                try:
                    return self._call(component, call, original, args, kwargs)
                finally:
                    self._inside.discard(component.name)

        return guarded

    def _call(
        self,
        component: Component,
        call: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self._takes_step_down():
            self._step_down(component, call)
        memory = self._remembered(component, call)
        random = RandomState()
        result, failure = self._attempt(component, call, memory, original, args, kwargs)
        if failure is None:
            return result
        rungs = self._climb(component, call, failure, memory)
        while failure is not None:
            self._mend(component, failure)
            rung, fault = self._next_rung(rungs)
            for _ in range(_MOVES_TRIED):
                if fault is None:
                    break
                # Moving weights for the rung ran out itself; what it had not moved yet is moved by trying once more.
                self._mend(component, fault)
                rungs = self._climb(component, call, failure, memory, released=True)
                rung, fault = self._next_rung(rungs)
            if rung is None:
                raise self._exhausted(component, fault or failure)
            self._tell(component, rung, failure)
            random.restore()
            result, failure = self._attempt(component, call, memory, original, args, kwargs)
        return result

    def _step_down(self, component: Component, call: str) -> None:
        rung, fault = self._next_rung(step_down(self._model, component, call))
        if fault is not None:
            self._mend(component, fault)
        elif rung is not None:
            where = self._whereabouts()
            self._on_rung(Rung(rung.kind, f"asked for less on the card{' ' + where if where else ''}: {rung.words}"))

    def _climb(
        self, component: Component, call: str, failure: _Failure, memory: CallMemory, *, released: bool = False
    ) -> Iterator[Rung]:
        switches, whole = self._switches, self._whole_batch_because
        return climb(
            self._model, component, call, failure.rows, memory, switches, whole, failure.lacking_bytes,
            released=released,
        )

    def _next_rung(self, rungs: Iterator[Rung]) -> tuple[Rung | None, _Failure | None]:
        try:
            return next(rungs, None), None
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return None, _Failure.of(error, self._model.card)

    def _attempt(
        self,
        component: Component,
        call: str,
        memory: CallMemory,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Any, _Failure | None]:
        """One try. Whoever recovers does so after this has returned, with the traceback and its tensors gone."""
        rows = rows_of(args, kwargs)
        at_once = memory.rows_per_call if self._whole_batch_because(component) is None else None
        try:
            if rows is not None and at_once is not None and at_once < rows:
                if memory.planned:
                    self._on_rung(Rung(RungKind.SPLIT_ROWS, memory.planned))
                    memory.planned = ""
                once = self._once(component, call, memory, original)
                return call_by_rows(once, args, kwargs, rows, at_once), None
            return self._once(component, call, memory, original)(*args, **kwargs), None
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return None, _Failure.of(error, self._model.card, rows)

    def _once(
        self, component: Component, call: str, memory: CallMemory, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        card = self._model.card

        def run(*args: Any, **kwargs: Any) -> Any:
            child = component.tileable.get(call) if memory.tiled else None
            tiling = tiled_forward(component.module.get_submodule(child), card) if child else nullcontext()
            with self._model.component_call(component, call), tiling:
                args, kwargs = card.bring((args, kwargs))
                with card.call_scope((args, kwargs)):
                    return original(*args, **kwargs)

        return run

    def _mend(self, component: Component, failure: _Failure) -> None:
        """Placement first: a hook that was interrupted leaves a module half on the card."""
        logger.info("%s: %s", component.name, failure.text)
        self._model.card.release_cached()
        mended, again = self._try_repair()
        if not mended:
            logger.info("%s: the placement itself no longer fits (%s); undone", component.name, again)
            self._model.card.release_cached()

    def _try_repair(self) -> tuple[bool, str]:
        try:
            self._model.repair()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return False, first_line(error)
        return True, ""

    def _tell(self, component: Component, rung: Rung, failure: _Failure) -> None:
        card = self._model.card
        where = self._whereabouts()
        words = (
            f"{component.kind} ran out{' ' + where if where else ''} with {format_bytes(failure.used_bytes)} of "
            f"{format_bytes(card.limit_bytes)} in use: {rung.words}"
        )
        logger.info("%s", words)
        self._on_rung(Rung(rung.kind, words))

    def _exhausted(self, component: Component, failure: _Failure) -> LadderExhaustedError:
        card = self._model.card
        why = self._whole_batch_because(component)
        sentence = (
            f"The {component.kind} does not fit in {format_bytes(card.limit_bytes)} however small its work is made"
            f"{f' (its rows cannot be split, because {why})' if why else ''}."
        )
        self._on_rung(Rung(RungKind.GIVE_UP, sentence))
        return LadderExhaustedError(sentence, detail=failure.text)

    def _remembered(self, component: Component, call: str) -> CallMemory:
        return self._memory.setdefault((component.name, call), CallMemory())
