"""A diffusers host on a simulated card, with faults on order: in a call, an operation or a copy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from sd_webui_spillway.host_port import ImageRequest, JobResult
from sd_webui_spillway.placement import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard

GIB = 2**30
PLACEMENTS = (Profile.DEDICATED, Profile.MEDVRAM, Profile.LOWVRAM, Profile.SEQUENTIAL)


def out_of_memory() -> torch.cuda.OutOfMemoryError:
    return torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (injected)")


class FaultyCard(SimulatedCard):
    """A simulated card whose n-th copy to it, or from it, can be made to fail. Counts both."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(total_bytes)
        self.puts = self.fetches = 0
        self.failing_puts: set[int] = set()
        self.failing_fetches: set[int] = set()
        self.closed = 0

    def arm(self, *, puts: set[int] = frozenset(), fetches: set[int] = frozenset()) -> None:
        """Count anew; the copies of these numbers (from 0) will fail."""
        self.puts = self.fetches = 0
        self.failing_puts, self.failing_fetches = set(puts), set(fetches)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        number, self.puts = self.puts, self.puts + 1
        if number in self.failing_puts:
            raise out_of_memory()
        return super().put(tensor)

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        number, self.fetches = self.fetches, self.fetches + 1
        if number in self.failing_fetches:
            raise out_of_memory()
        return super().fetch(tensor)

    def close(self) -> None:
        self.closed += 1
        super().close()


class FailingMode(TorchDispatchMode):
    """The operation of this number (from 0) runs out of memory."""

    def __init__(self, operation: int) -> None:
        super().__init__()
        self._left = operation

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._left -= 1
        if self._left < 0:
            raise out_of_memory()
        return func(*args, **(kwargs or {}))


class CallFaults:
    """Stands inside the guard, around the real methods of the pipeline's components."""

    def __init__(self) -> None:
        self.should_fail: Callable[[str, int, tuple], bool] = lambda call, number, args: False
        self.operation = 20
        self.calls: dict[str, int] = {}
        self.raised = 0

    def reset(self) -> None:
        self.should_fail = lambda call, number, args: False
        self.operation, self.calls, self.raised = 20, {}, 0

    def fail(self, call: str, first: int, times: int = 1, operation: int = 20) -> None:
        """Calls number ``first`` … ``first + times - 1`` of this method (from 0, retries counted) run out."""
        self.reset()
        self.operation = operation
        self.should_fail = lambda called, number, args: called == call and first <= number < first + times

    @contextmanager
    def around(self, call: str, args: tuple) -> Iterator[None]:
        number = self.calls.get(call, 0)
        self.calls[call] = number + 1
        if not self.should_fail(call, number, args):
            yield
            return
        try:
            with FailingMode(self.operation):
                yield
        except torch.cuda.OutOfMemoryError:
            self.raised += 1
            raise

    def install(self, pipeline, monkeypatch) -> None:
        """Before the host is built, on the classes, so that what it wraps are these methods. Other instances of the
        classes (what works out footprints uses copies) pass by."""
        for name, method in (
            ("text_encoder", "forward"), ("text_encoder_2", "forward"), ("unet", "forward"),
            ("vae", "encode"), ("vae", "decode"),
        ):
            module = getattr(pipeline, name, None)
            if module is None:
                continue
            label = method if name == "vae" else name
            self._wrap(module, method, label, monkeypatch)

    def _wrap(self, module, method: str, label: str, monkeypatch) -> None:
        original = getattr(type(module), method)

        @functools.wraps(original)
        def wrapped(self_, *args, **kwargs):
            if self_ is not module:
                return original(self_, *args, **kwargs)
            with self.around(label, (*args, *kwargs.values())):
                return original(self_, *args, **kwargs)

        monkeypatch.setattr(type(module), method, wrapped)


@dataclass
class Watcher:
    """A job's observer that remembers what it was told; can ask to stop after so many finished images."""

    stop_when: Callable[[Watcher], bool] = lambda watcher: False
    step_down_when: Callable[[Watcher], bool] = lambda watcher: False
    stages: list[str] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    rungs: list[str] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    records: list = field(default_factory=list)

    def batch(self, index: int) -> None:
        self.batches.append(index)

    def stage(self, name: str) -> None:
        self.stages.append(name)

    def step(self, index: int, count: int) -> None:
        self.steps.append((index, count))

    def rung(self, words: str) -> None:
        self.rungs.append(words)

    def profile(self, profile: Profile) -> None:
        self.profiles.append(profile)

    def image(self, record):
        self.records.append(record)
        return record

    def stop_requested(self) -> bool:
        return self.stop_when(self)

    def takes_step_down(self) -> bool:
        return self.step_down_when(self)


class Rig:
    """One host over one pipeline on one card."""

    def __init__(self, model, folder: Path, card_bytes: int = 64 * GIB, faults: CallFaults | None = None) -> None:
        from sd_webui_spillway.hosts.diffusers import DiffusersHost

        self.model = model
        self.folder = folder
        self.faults = faults or CallFaults()
        self.card = FaultyCard(card_bytes)
        self.host = DiffusersHost(model, self.card)

    @property
    def placement(self) -> Profile | None:
        return self.host._placed.profile

    def make(self, request: ImageRequest, profile: Profile, watcher: Watcher | None = None) -> JobResult:
        return self.host.generate(request, profile, "ab" * 16, self.folder, watcher or Watcher())

    def pictures(self, request: ImageRequest, profile: Profile) -> list[np.ndarray]:
        return pixels(self.make(request, profile))


def pixels(result: JobResult) -> list[np.ndarray]:
    """The delivered pictures as they are on disk."""
    pictures = []
    for delivered in result.images:
        with Image.open(delivered.path) as image:
            pictures.append(np.asarray(image.convert("RGB")).copy())
    return pictures


def same(ours: list[np.ndarray], theirs: list[np.ndarray], *, within: int = 0) -> bool:
    """As many pictures, of the same sizes, no channel of any pixel further apart than this."""
    if len(ours) != len(theirs) or any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
        return False
    return all(np.abs(a.astype(int) - b.astype(int)).max() <= within for a, b in zip(ours, theirs, strict=True))
