"""What is measured: one way to run a module whose weights may not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..machine import Machine
from ..models import Inputs, ModelSpec

Step = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """What a peer is given to place and to run."""

    spec: ModelSpec
    machine: Machine
    inputs: Inputs
    """On the machine's device."""
    new_module: Callable[[], nn.Module]
    """The model anew, in system memory, not pinned."""


class Peer:
    """One way to place weights; an object of its own in each child process.

    The figures for estimates come from earlier measurements on one H200; they only decide what still fits in the time.
    """

    name: str
    summary: str
    budgeted = False
    """Whether it can be told how many dedicated bytes weights may take."""
    holds_all = False
    """Whether every weight is on the card during a step, so that its bound is the dedicated step."""
    keeps_reference = True
    """Whether a second copy of the model may stay on the card beside it, for dedicated steps in between. Not where
    torch has an allocator of the peer's, under which it keeps no count either."""
    needs_gpu = False
    guessed_bytes_per_second = 5e9
    """Roughly, at which what is not resident comes to the card."""

    def unavailable_because(self, machine: Machine) -> str | None:
        """Why it cannot run in this process; ``None`` where it can."""
        return "it needs a CUDA card" if self.needs_gpu and machine.simulated else None

    def prepare(self, machine: Machine) -> None:
        """Before anything in this process has touched the card."""

    def adapted(self, spec: ModelSpec) -> ModelSpec:
        """The model as this peer has it: another tool brings its own UNet of the same sizes.

        Raises:
            UnavailableError: it has no such model.
        """
        return spec

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        """Place a model and return its step. Called again for another budget; what was placed before is given up.

        Raises:
            UnavailableError: it cannot, and why.
        """
        raise NotImplementedError

    def begin(self) -> None:
        """Warmed up: the steps that count come now."""

    def facts(self) -> dict[str, Any]:
        """What it knows of itself after the steps, under the result's keys."""
        return {}

    def switching(self, work: Work, budget_bytes: int) -> dict[str, Any]:
        """What going to this placement and back takes, where that is a cell of its own.

        Raises:
            UnavailableError: it does not switch.
        """
        raise NotImplementedError

    def guessed_seconds(self, spec: ModelSpec, budget_bytes: int | None) -> float:
        """Roughly, a step."""
        if self.holds_all:
            return spec.dedicated_seconds
        missing = max(0, spec.weights_bytes - (budget_bytes or 0))
        return spec.dedicated_seconds + missing / self.guessed_bytes_per_second


def plain_step(module: nn.Module, work: Work) -> Step:
    """The module's own call."""
    return lambda: module(**work.inputs)
