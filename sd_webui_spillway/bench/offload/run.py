"""Runs the cells: a warm process a peer, turn by turn, every result written as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...units import format_seconds
from ..results import ResultFile
from .cells import Cell, estimate_seconds
from .figures import derived
from .models import ModelSpec
from .peers import Peer
from .process import Child, ChildFailedError

_READY_SECONDS = 240.0
_LOAD_SECONDS = 120.0
_FAILURES_BORNE = 2
_MOST_WARM = 8
_CARD_SHARE, _CARD_USE = 0.8, 1.5
"""Of the card, for all of them together; of the weights, for each, with what a step takes."""


@dataclass(frozen=True)
class RunOptions:
    """How a run goes."""

    steps: int = 10
    """The fewest that count in a cell."""
    warm: int | None = None
    """The most processes kept at once; ``None`` is as many as :meth:`warm_for` finds."""
    card_bytes: int | None = None
    """Of the card they share; ``None`` is unknown."""
    seconds: float | None = None
    """Begin no cell that would not fit in this; ``None`` is as long as it takes."""
    patience_factor: float = 6.0
    patience_seconds: float = 60.0
    """A child that takes so many times a cell's estimate, and this on top, hangs."""

    def warm_for(self, spec: ModelSpec) -> int:
        """How many processes of a model are kept: each has it on the card, for dedicated steps, and once or twice in
        system memory."""
        if self.warm is not None:
            return self.warm
        if self.card_bytes is None:
            return _MOST_WARM
        return max(1, min(_MOST_WARM, int(_CARD_SHARE * self.card_bytes / (_CARD_USE * spec.weights_bytes))))


class OffloadRun:
    """One run over a list of cells; what the results hold already is not measured again."""

    def __init__(
        self,
        results: ResultFile,
        specs: Mapping[str, ModelSpec],
        peers: Mapping[str, Peer],
        options: RunOptions,
        start: Callable[[str], Child],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``start`` begins the process of the peer of that name."""
        self._results, self._specs, self._peers = results, specs, peers
        self._options, self._start, self._clock = options, start, clock
        self._began = clock()
        self._children: dict[str, Child] = {}
        self._loaded: set[str] = set()
        self._given_up: dict[tuple[str, str], str] = {}
        self._failures: dict[tuple[str, str], int] = {}

    def run(self, cells: Sequence[Cell]) -> list[Cell]:
        """Measure what is missing; returns the cells that the time left out."""
        missing = [cell for cell in cells if not self._results.has(**cell.key)]
        left_out: list[Cell] = []
        try:
            for model in dict.fromkeys(cell.model for cell in missing):
                left_out += self._model([cell for cell in missing if cell.model == model])
        finally:
            self._end(list(self._children))
        self._results.content["left_out"] = [str(cell) for cell in left_out]
        self._results.save()
        return left_out

    def _model(self, cells: Sequence[Cell]) -> list[Cell]:
        left_out: list[Cell] = []
        # All import at once, and no other work is measured meanwhile.
        first = list(dict.fromkeys(cell.peer for cell in cells))[: self._options.warm_for(self._specs[cells[0].model])]
        if self._left() > 0:
            self._children |= {peer: self._start(peer) for peer in first}
            for peer in first:
                self._await(cells[0].model, peer)
        for position, cell in enumerate(cells):
            if not self._fits(cell) or not self._cell(cell, cells[position:]):
                left_out.append(cell)
            if cell.peer not in {later.peer for later in cells[position + 1 :]}:
                self._end([cell.peer])
        self._end(list(self._children))
        return left_out

    def _cell(self, cell: Cell, coming: Sequence[Cell]) -> bool:
        """Measure one and write its row; ``False`` where the time ended first."""
        began, place = self._clock(), (cell.model, cell.peer)
        try:
            raw = self._measured(cell, coming)
        except ChildFailedError as error:
            self._end([cell.peer])
            if self._left() <= 0:
                return False
            raw = {"why": str(error)}
        if "why" in raw:
            self._failures[place] = self._failures.get(place, 0) + 1
            if self._failures[place] >= _FAILURES_BORNE:
                self._given_up.setdefault(place, raw["why"])
            self._end([cell.peer])  # a process whose cell failed may be ill
            found = raw
        elif cell.what == "step":
            found = {"why": None, **raw, **derived(raw, cell.budget_bytes, holds_all=self._peers[cell.peer].holds_all)}
        else:
            found = {"why": None, **raw}
        self._results.add(**cell.key, cell_seconds=self._clock() - began, **found)
        sys.stderr.write(f"{cell}: {_words(found)}\n")
        return True

    def _measured(self, cell: Cell, coming: Sequence[Cell]) -> dict[str, Any]:
        place = (cell.model, cell.peer)
        if place in self._given_up:
            return {"why": self._given_up[place]}
        child = self._child(cell, coming)
        if place in self._given_up:
            return {"why": self._given_up[place]}
        if cell.peer not in self._loaded:
            answer = child.order(self._patience(_LOAD_SECONDS), do="load", model=cell.model)
            if "why" in answer:
                self._given_up[place] = answer["why"]
                return {"why": answer["why"]}
            self._loaded.add(cell.peer)
        options = self._options
        patience = self._patience(options.patience_seconds + options.patience_factor * self._estimate(cell))
        return child.order(patience, do=cell.what.replace("step", "measure"), budget_bytes=cell.budget_bytes,
                           steps=options.steps)  # fmt: skip

    def _child(self, cell: Cell, coming: Sequence[Cell]) -> Child:
        """The peer's process, started where it is not there; another makes room where they are too many."""
        if cell.peer not in self._children:
            turns = {later.peer: turn for turn, later in reversed(list(enumerate(coming)))}
            while len(self._children) >= self._options.warm_for(self._specs[cell.model]):
                self._end([max(self._children, key=lambda peer: turns.get(peer, len(coming)))])
            self._children[cell.peer] = self._start(cell.peer)
            self._await(cell.model, cell.peer)
        return self._children[cell.peer]

    def _await(self, model: str, peer: str) -> None:
        """The first answer: whether it can run."""
        try:
            answer = self._children[peer].answer(self._patience(_READY_SECONDS))
            why = None if answer.get("ready") else str(answer.get("why"))
        except ChildFailedError as error:
            why = str(error)
        if why is not None:
            self._given_up[model, peer] = why

    def _fits(self, cell: Cell) -> bool:
        return (cell.model, cell.peer) in self._given_up or self._estimate(cell) <= self._left()

    def _estimate(self, cell: Cell) -> float:
        """From an earlier round where there is one."""
        earlier = [
            row["cell_seconds"] for row in self._results.cells
            if not row["why"] and {**row, "round": cell.round}.items() >= cell.key.items()
        ] if cell.round else []  # fmt: skip
        if earlier and cell.peer in self._loaded:
            return float(max(earlier))
        spec, peer = self._specs[cell.model], self._peers[cell.peer]
        return estimate_seconds(cell, spec, peer, self._options.steps, placed=cell.peer in self._loaded)

    def _left(self) -> float:
        """Seconds until the time is over."""
        if self._options.seconds is None:
            return float("inf")
        return self._options.seconds - (self._clock() - self._began)

    def _patience(self, seconds: float) -> float:
        return max(1.0, min(seconds, self._left()))

    def _end(self, peers: Sequence[str]) -> None:
        for peer in peers:
            self._loaded.discard(peer)
            child = self._children.pop(peer, None)
            if child is not None:
                child.end()


def _words(found: Mapping[str, Any]) -> str:
    if found["why"]:
        return f"no figures, because {found['why']}"
    if "switches" in found:
        return ", ".join(f"{format_seconds(one['to_stream_added_seconds'])}" for one in found["switches"])
    step, ratio = found["step"], found["step_to_bound"]
    spread = f"{step['median'] * 1e3:.1f} ms ({step['first_quartile'] * 1e3:.1f}–{step['third_quartile'] * 1e3:.1f})"
    return spread if ratio is None else f"{spread}, {ratio:.2f} × the bound"
