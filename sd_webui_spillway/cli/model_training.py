"""``spillway model train``."""

from __future__ import annotations

import argparse

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..errors import BadInputError
from .model_commands import device_named
from .output import console, errors_console

_SECONDS_A_MINUTE = 60
PAUSED = 3
"""The exit code of a run that is not finished."""


class _Shown:
    """Training's progress as one bar a stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def stage(self, name: str, total: int) -> None:
        self._task = self._progress.add_task(name, total=total, loss="")

    def step(self, done: int, loss: float | None) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done)
            if loss is not None:
                self._progress.update(self._task, loss=f"loss {loss:.4f}")


def train(options: argparse.Namespace) -> int:
    """``spillway model train``: 0 once the model is finished, 3 where the time ran out before."""
    from ..models.training.loop import Clock, PausedError
    from ..models.training.recipe import RECIPES
    from ..models.training.store import Store
    from ..models.training.train import Training

    if options.minutes is not None and options.minutes <= 0:
        raise BadInputError(f"The minutes must be above 0, not {options.minutes:g}.")
    seconds = None if options.minutes is None else options.minutes * _SECONDS_A_MINUTE
    device = device_named(options.device)
    if device.type == "cpu" and options.recipe == "full":
        errors_console().print("On a processor the full recipe takes days; it is meant for a GPU. Ctrl-C stops it.")
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[loss]}"),
    )  # fmt: skip
    with Progress(*columns, console=errors_console()) as progress:
        training = Training(
            RECIPES[options.recipe], Store(options.folder), device, _Shown(progress),
            Clock(seconds),
        )  # fmt: skip
        try:
            finished = training.run()
        except PausedError:
            finished = None
    if finished is None:
        console().print(f"Paused after {options.minutes:g} minutes; the same command goes on from there.")
        return PAUSED
    console().print(f"The model is in {finished}.")
    return 0

