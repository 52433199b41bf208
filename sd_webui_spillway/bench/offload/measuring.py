"""One peer and one model in this process: the dedicated step, and the step of each placement, beside one another."""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import torch
from torch import nn

from ...placement.tensor_tree import map_tensors
from ...recovery.out_of_memory import is_out_of_memory
from .machine import Machine, timed
from .models import ModelSpec, copied, materialised, tensors
from .peers.base import Peer, Step, Work

WARM_UP_STEPS = 4
"""Our ring learns in two of them; other tools warm their caches."""
MOST_STEPS = 30
AIMED_SECONDS = 3.0
"""Quick steps are taken as often as fits in this, slow ones as often as is asked."""
DEDICATED_STEPS = 5
"""Before a cell's own steps, and as many again after them."""


class Measuring:
    """Holds the model as it was made (on the card where it fits), and the one that the peer has placed."""

    def __init__(self, peer: Peer, spec: ModelSpec, machine: Machine) -> None:
        began = time.perf_counter()
        self._peer, self._machine = peer, machine
        self.spec = peer.adapted(spec)
        self._link_bytes_per_second = machine.link_bytes_per_second()
        self._inputs: dict[str, Any] = map_tensors(self.spec.inputs(), lambda tensor: tensor.to(machine.device))
        self._reference: nn.Module | None
        try:
            self._reference = materialised(self.spec, machine.device)
        except torch.cuda.OutOfMemoryError:
            self._reference = None
        self._master = self._reference or materialised(self.spec, torch.device("cpu"))
        self.weights_bytes = sum(tensor.nbytes for tensor in tensors(self._master))
        self._expected: torch.Tensor | None = None
        self._activation_bytes: int | None = None
        self._dedicated: list[tuple[float, float]] = []
        if self._reference is not None:
            self._first_dedicated_steps(self._reference)
        if self._reference is not None and not peer.keeps_reference:
            self._master, self._reference = copied(self._reference, self.spec), None
        self._release()
        self._baseline_bytes = machine.allocated_bytes() if peer.keeps_reference else None
        self._step: Step | None = None
        self._budget_bytes: int | None = None
        self._place_seconds: float | None = None
        self.load_seconds = time.perf_counter() - began

    def measure(self, budget_bytes: int | None, fewest_steps: int) -> dict[str, Any]:
        """One cell."""
        if self._reference is not None:
            self._link_bytes_per_second = self._machine.link_bytes_per_second()
            self._dedicated = [self._dedicated_step() for _ in range(DEDICATED_STEPS)]
        step = self._placed(budget_bytes)
        warm_up = [timed(step, self._machine)[0] for _ in range(WARM_UP_STEPS)]
        steps = max(fewest_steps, min(MOST_STEPS, int(AIMED_SECONDS / max(warm_up[-1], 1e-9))))
        self._peer.begin()
        if self._baseline_bytes is not None:
            self._machine.reset_peak()
        result: Any = None
        own: list[tuple[float, float]] = []
        for _ in range(steps):
            seconds, spent, result = timed(step, self._machine)
            own.append((seconds, spent))
        peak = self._peak_bytes()
        if self._reference is not None:
            self._dedicated += [self._dedicated_step() for _ in range(DEDICATED_STEPS)]
        same = torch.equal(_tensor(result), self._expected) if self._expected is not None else None
        return {
            "weights_bytes": self.weights_bytes,
            "activation_bytes": self._activation_bytes,
            "link_bytes_per_second": self._link_bytes_per_second,
            "dedicated_beside": self._reference is not None,
            "place_seconds": self._place_seconds,
            "warm_up_seconds": warm_up,
            "step_seconds": [seconds for seconds, _ in own],
            "step_cpu_seconds": statistics.median(spent for _, spent in own),
            "dedicated_seconds": [seconds for seconds, _ in self._dedicated],
            "dedicated_cpu_seconds": statistics.median(s for _, s in self._dedicated) if self._dedicated else None,
            "peak_dedicated_bytes": peak,
            "pinned_bytes": self._machine.pinned_bytes(),
            "cap_bytes": None,
            "predicted_step_seconds": None,
            "equal_to_dedicated": same,
            **self._peer.facts(),
        }

    def switching(self, budget_bytes: int) -> dict[str, Any]:
        """The cell of a switch there and back."""
        found = self._peer.switching(self._work(), budget_bytes)
        return {"weights_bytes": self.weights_bytes, "link_bytes_per_second": self._link_bytes_per_second, **found}

    def _placed(self, budget_bytes: int | None) -> Step:
        if self._step is None or self._budget_bytes != budget_bytes:
            self._step = None  # what another tool has placed goes before the next is
            self._release()
            began = time.perf_counter()
            self._step = _without_gradients(self._peer.place(self._work(), budget_bytes))
            self._machine.synchronize()
            self._place_seconds, self._budget_bytes = time.perf_counter() - began, budget_bytes
        return self._step

    def _release(self) -> None:
        gc.collect()
        if self._peer.keeps_reference:  # an allocator of the peer's empties its own cache
            self._machine.release()

    def _work(self) -> Work:
        return Work(self.spec, self._machine, self._inputs, lambda: copied(self._master, self.spec))

    def _first_dedicated_steps(self, reference: nn.Module) -> None:
        step = _without_gradients(lambda: reference(**self._inputs))
        self._expected = _tensor(step())
        for _ in range(WARM_UP_STEPS):
            timed(step, self._machine)
        counts = self._peer.keeps_reference  # under an allocator of its own torch keeps no count
        before = self._machine.allocated_bytes() if counts else None
        if counts:
            self._machine.reset_peak()
        self._dedicated = [timed(step, self._machine)[:2] for _ in range(2 * DEDICATED_STEPS)]
        peak = self._machine.peak_bytes() if counts else None
        self._activation_bytes = peak - before if peak is not None and before is not None else None

    def _dedicated_step(self) -> tuple[float, float]:
        reference = self._reference
        if reference is None:
            raise RuntimeError("there is no model on the card")
        seconds, spent, _ = timed(_without_gradients(lambda: reference(**self._inputs)), self._machine)
        return seconds, spent

    def _peak_bytes(self) -> int | None:
        """Since the last reset, the model as it was made and a step's inputs aside."""
        peak = self._machine.peak_bytes() if self._baseline_bytes is not None else None
        return peak - self._baseline_bytes if peak is not None and self._baseline_bytes is not None else None


def failure(error: BaseException) -> str:
    """Why a cell has no figures, in a few words."""
    text = str(error).strip().splitlines()
    words = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return f"out of memory ({words})" if is_out_of_memory(error) else words


def _tensor(result: Any) -> torch.Tensor:
    found: torch.Tensor = result if isinstance(result, torch.Tensor) else result[0]
    return found


def _without_gradients(step: Step) -> Step:
    def call() -> Any:
        with torch.no_grad():
            return step()

    return call
