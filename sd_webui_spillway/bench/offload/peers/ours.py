"""Our own profiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn

from ....memory.shared_ledger import SharedLedger
from ....placement.component import Component, ComponentKind
from ....placement.placed_model import PlacedModel
from ....placement.profile import PROFILES, Profile
from ....placement.stream import StreamOptions
from ..machine import Machine, timed
from ..models import ModelSpec
from .base import Peer, Step, Work

_HOOK_PASSES = 5
_FIRST_CALLS = 4
"""Until a step is as every later one: in the first the order is learnt, in the second it is measured."""


class Ours(Peer):
    """One of our profiles around the component, as a host uses it."""

    def __init__(self, profile: Profile, guessed_bytes_per_second: float) -> None:
        self.name = profile.value
        self.summary = f"our profile {profile}: {PROFILES[profile].summary}"
        self.budgeted = profile is Profile.STREAM
        self.holds_all = profile in (Profile.DEDICATED, Profile.MEDVRAM)
        self.guessed_bytes_per_second = guessed_bytes_per_second
        self._profile = profile
        self._placed: PlacedModel | None = None
        self._step: Step | None = None

    def unavailable_because(self, machine: Machine) -> str | None:
        card = machine.card()
        return card.no_link_because if self._profile is Profile.STREAM else PROFILES[self._profile].unavailable_because

    def place(self, work: Work, budget_bytes: int | None) -> Step:
        placed, step = self._made(work)
        placed.set_weights_budget(budget_bytes)
        placed.switch(self._profile)
        return step

    def begin(self) -> None:
        if self._placed is not None:
            self._placed.card.reset_peak()

    def facts(self) -> dict[str, Any]:
        if self._placed is None or self._step is None:
            return {}
        placed = self._placed
        found: dict[str, Any] = {
            "pinned_bytes": placed.ledger.pinned_bytes,
            "cap_bytes": placed.ledger.cap_bytes,
            "predicted_step_seconds": placed.predicted_step_seconds(placed.components[0]),
            "resident_bytes": placed.resident_bytes(),
        }
        if placed.card.simulated:
            found["peak_dedicated_bytes"] = placed.card.peak_bytes()
        else:
            calls, seconds = hook_seconds(placed.components[0].module, self._step)
            found |= {"hook_calls": calls, "hook_cpu_seconds": seconds}
        return found

    def switching(self, work: Work, budget_bytes: int) -> dict[str, Any]:
        """From dedicated to this profile and back, twice, in a process that has not had this profile before. The first
        calls after a switch bring what the switch itself puts off: pinning, and what is resident."""
        placed, step = self._made(work)
        placed.set_weights_budget(budget_bytes)
        placed.switch(Profile.DEDICATED)
        step()
        times: list[dict[str, Any]] = []
        for _ in range(2):
            there, _, _ = timed(lambda: placed.switch(self._profile), work.machine)
            calls = [timed(step, work.machine)[0] for _ in range(_FIRST_CALLS)]
            steady = min(timed(step, work.machine)[0] for _ in range(_FIRST_CALLS))
            pinned = placed.ledger.pinned_bytes
            back, _, _ = timed(lambda: placed.switch(Profile.DEDICATED), work.machine)
            again, _, _ = timed(step, work.machine)
            times.append({
                "to_stream_seconds": there,
                "first_call_seconds": calls,
                "steady_seconds": steady,
                "to_stream_added_seconds": there + sum(max(0.0, seconds - steady) for seconds in calls),
                "to_dedicated_seconds": back,
                "dedicated_call_seconds": again,
                "pinned_bytes": pinned,
            })
        return {"switches": times, "cap_bytes": placed.ledger.cap_bytes}

    def guessed_seconds(self, spec: ModelSpec, budget_bytes: int | None) -> float:
        if self._profile is Profile.STREAM:  # copies beside the computation
            return max(spec.dedicated_seconds, super().guessed_seconds(spec, budget_bytes) - spec.dedicated_seconds)
        return super().guessed_seconds(spec, budget_bytes)

    def _made(self, work: Work) -> tuple[PlacedModel, Step]:
        if self._placed is None or self._step is None:
            component = Component("unet", ComponentKind.UNET, work.new_module(), {"forward": ()})
            options = StreamOptions(chunk_bytes=work.spec.chunk_bytes)
            ledger = SharedLedger(work.spec.cap_bytes)
            self._placed = PlacedModel([component], work.machine.card(), ledger, options)
            self._step = _step(self._placed, component, work)
        return self._placed, self._step


def _step(placed: PlacedModel, component: Component, work: Work) -> Callable[[], Any]:
    def step() -> Any:
        # A real card counts nothing; a simulated one only what runs inside.
        scope = placed.card.call_scope(work.inputs) if placed.card.simulated else nullcontext()
        with placed.component_call(component, "forward"), scope:
            return component.module(**work.inputs)

    return step


def hook_seconds(module: nn.Module, step: Step) -> tuple[int, float]:
    """How many hooks a pass calls, and the processor seconds that they take.

    Each call's own least over a few passes, added up: a hook that happens to wait for room in the card's queue of work
    is not charged for it.
    """
    passes: list[list[float]] = []
    with _timed_hooks(module, passes):
        for _ in range(_HOOK_PASSES):
            passes.append([])
            step()
    calls = min(map(len, passes))
    return calls, sum(min(one[position] for one in passes) for position in range(calls))


@contextmanager
def _timed_hooks(module: nn.Module, passes: list[list[float]]) -> Iterator[None]:
    """While open, every hook of every module inside adds its processor seconds to the last pass."""
    originals: list[tuple[dict[int, Any], dict[int, Any]]] = []
    for inner in module.modules():
        tables: tuple[dict[int, Any], ...] = (inner._forward_pre_hooks, inner._forward_hooks)
        for table in tables:
            originals.append((table, dict(table)))
            table.update({key: _timed_hook(hook, passes) for key, hook in table.items()})
    try:
        yield
    finally:
        for table, hooks in originals:
            table.update({key: hook for key, hook in hooks.items() if key in table})


def _timed_hook(hook: Any, passes: list[list[float]]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        try:
            return hook(*args, **kwargs)
        finally:
            passes[-1].append(time.thread_time() - began)

    return call
