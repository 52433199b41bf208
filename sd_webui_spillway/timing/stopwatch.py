"""Seconds by stage: an inner stage pauses the outer one, so that no second is counted twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType


class Stopwatch:
    """Times the stages of one piece of work. For one thread.

    ``synchronize`` waits until the device has done all that is queued. It is called wherever a stage begins, ends,
    pauses or goes on, so that work the device does later still counts for the stage that queued it.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, synchronize: Callable[[], None] | None = None
    ) -> None:
        self._clock = clock
        self._synchronize = synchronize
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._started = self._since = clock()

    @property
    def seconds(self) -> Mapping[str, float]:
        """By stage, in the order in which they were first entered; a stage entered again adds up. A stage still open
        counts up to its last pause."""
        return MappingProxyType(self._seconds)

    def elapsed(self) -> float:
        """Seconds since this stopwatch was made, whatever the stages say."""
        return self._clock() - self._started

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what is done inside for this stage and not for the one around it."""
        self._turn()
        self._seconds.setdefault(name, 0.0)
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        """Book the time since the last boundary for the innermost open stage."""
        try:
            if self._synchronize is not None:
                self._synchronize()
        finally:
            now = self._clock()
            if self._open:
                self._seconds[self._open[-1]] += now - self._since
            self._since = now
