"""The loop that every stage of training shares: a schedule, an average of the weights, resuming, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ..atomic import whole_file

_SAVE_SECONDS = 60.0
_SHOWN_EVERY = 20
_WARM_UP = 0.03
_AVERAGE_DECAY = 0.999
_CLIPPED_NORM = 1.0


class PausedError(Exception):
    """The time that was given is over; what has been learnt is saved and the same command goes on from it."""


class Report(Protocol):
    """Who is told how far training is."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins."""

    def step(self, done: int, loss: float | None) -> None:
        """So many steps of the stage are done."""


@dataclass
class Clock:
    """When to save and when to pause."""

    pause_after_seconds: float | None = None
    _start: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether the time that was given is used up."""
        return self.pause_after_seconds is not None and time.monotonic() - self._start > self.pause_after_seconds


def learning_rate(done: int, steps: int, peak: float) -> float:
    """A short rise, then half a cosine down to a hundredth of the peak."""
    warm = max(1, int(steps * _WARM_UP))
    if done < warm:
        return peak * (done + 1) / warm
    return peak * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (done - warm) / max(1, steps - warm))))


def half_precision(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 on a GPU; a CPU computes as it is."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()


def averaged(model: nn.Module) -> AveragedModel:
    """A running average of the weights, which draws better than the weights themselves."""
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(_AVERAGE_DECAY))


@dataclass
class Stage:
    """One stage: ``steps`` calls of ``loss_of(step number, generator)``, each followed by a step of the optimiser.

    ``average`` follows ``model`` where it is given. ``file`` holds the state between two runs.
    """

    name: str
    steps: int
    peak_learning_rate: float
    model: nn.Module
    parameters: Sequence[nn.Parameter]
    loss_of: Callable[[int, torch.Generator], Tensor]
    file: Path
    seed: int
    average: AveragedModel | None = None
    sample: Callable[[int], None] | None = None
    """Called now and then with the number of steps done, to show what has been learnt."""
    sample_every: int = 2_000

    def run(self, device: torch.device, report: Report, clock: Clock) -> None:
        """All steps that are not done yet.

        Raises:
            PausedError: the clock ran out; the state is saved.
        """
        optimizer = torch.optim.AdamW(
            self.parameters, self.peak_learning_rate, betas=(0.9, 0.99), weight_decay=0.01, fused=device.type == "cuda"
        )
        generator = torch.Generator(device).manual_seed(self.seed)
        done = self._resume(optimizer, generator, device)
        report.stage(self.name, self.steps)
        report.step(done, None)
        saved = time.monotonic()
        while done < self.steps:
            rate = learning_rate(done, self.steps, self.peak_learning_rate)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = self.loss_of(done, generator)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, _CLIPPED_NORM)
            optimizer.step()
            if self.average is not None:
                self.average.update_parameters(self.model)
            done += 1
            if done % _SHOWN_EVERY == 0 or done == self.steps:
                report.step(done, loss.item())
            if clock.is_over or time.monotonic() - saved > _SAVE_SECONDS:
                self._save(done, optimizer, generator)
                saved = time.monotonic()
                if clock.is_over and done < self.steps:
                    raise PausedError
            if self.sample is not None and (done % self.sample_every == 0 or done == self.steps):
                self.sample(done)
        self.file.unlink(missing_ok=True)

    def _save(self, done: int, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        state = {
            "done": done,
            "model": self.model.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": optimizer.state_dict(),
            "generator": generator.get_state(),
        }
        with whole_file(self.file) as temporary:
            torch.save(state, temporary)

    def _resume(self, optimizer: torch.optim.Optimizer, generator: torch.Generator, device: torch.device) -> int:
        if not self.file.is_file():
            return 0
        state = torch.load(self.file, map_location=device, weights_only=True)
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        generator.set_state(state["generator"].cpu())
        return int(state["done"])
