"""What the watch over the webui's jobs asks of whoever places its models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ...host_port import ImageRequest, JobObserver
from ...placement.profile import Profile


class JobPlacement(Protocol):
    """How the models lie for one job."""

    @property
    def profile_asked(self) -> str: ...

    @property
    def estimated_dedicated_bytes(self) -> int | None: ...

    @property
    def notices(self) -> Sequence[str]: ...


class Engine(Protocol):
    """Places the webui's models and guards the calls of their components."""

    whereabouts: Callable[[], str]
    """Where in the job the work is, for the words of a rung."""

    @property
    def device_label(self) -> str: ...

    @property
    def simulated(self) -> bool: ...

    def job(
        self, request: ImageRequest, profile: Profile, observer: JobObserver
    ) -> AbstractContextManager[JobPlacement]:
        """Around a job: ``auto`` picks, the models are placed; afterwards the placement is the one before.

        Raises:
            SpillwayError: they cannot be placed at all.
        """

    def profile_in_force(self) -> str: ...

    def resident_percent(self) -> int | None:
        """The part of the weights that stays on the card, where the profile has one."""

    def rungs_taken(self) -> tuple[str, ...]:
        """What the guard did in this job so far, in words."""

    def report(self, words: str) -> None:
        """Something was done in this job to survive, beside what the guard does: a rung like any other."""

    def peak_bytes(self) -> int | None:
        """The peak on the card since :meth:`reset_peak`."""

    def reset_peak(self) -> None: ...

    def moved_bytes(self) -> int:
        """Weights copied between system memory and the card since the start."""

    def synchronize(self) -> None: ...

    def make_room(self) -> str | None:
        """Move our weights off the card, or step down: for work that is no component's call. In words what was
        done; ``None`` where nothing could be."""
