"""An engine that places nothing and tells what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sd_webui_spillway.errors import SpillwayError
from sd_webui_spillway.host_port import ImageRequest, JobObserver
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.units import GIB


@dataclass
class FakePlacement:
    profile_asked: str
    estimated_dedicated_bytes: int | None = 3 * GIB
    notices: list[str] = field(default_factory=list)


@dataclass
class FakeEngine:
    """Fulfils :class:`~sd_webui_spillway.hosts.a1111.engine_port.Engine`."""

    device_label: str = "Fake card"
    simulated: bool = False
    whereabouts: Callable[[], str] = lambda: ""
    cannot_place: str | None = None
    """Why no job can be placed."""
    resident: int | None = 41
    peak: int | None = int(5.6 * GIB)
    moved: int = 0
    requests: list[tuple[ImageRequest, Profile]] = field(default_factory=list)
    rooms_made: list[str] = field(default_factory=list)
    """Where the work was at each call of make_room."""
    open_jobs: int = 0
    profile: str = "stream"
    rungs: tuple[str, ...] = ()

    @contextmanager
    def job(self, request: ImageRequest, profile: Profile, observer: JobObserver) -> Iterator[FakePlacement]:
        if self.cannot_place:
            raise SpillwayError(self.cannot_place)
        self.requests.append((request, profile))
        self.open_jobs += 1
        self.rungs = ()
        self.observer = observer
        try:
            yield FakePlacement(profile.value)
        finally:
            self.open_jobs -= 1

    def profile_in_force(self) -> str:
        return self.profile

    def resident_percent(self) -> int | None:
        return self.resident

    def rungs_taken(self) -> tuple[str, ...]:
        return self.rungs

    def peak_bytes(self) -> int | None:
        return self.peak

    def reset_peak(self) -> None:
        pass

    def moved_bytes(self) -> int:
        self.moved += 1000
        return self.moved

    def synchronize(self) -> None:
        pass

    def make_room(self) -> str | None:
        self.rooms_made.append(self.whereabouts())
        words = "the models were moved off the card"
        self.report(words)
        return words

    def report(self, words: str) -> None:
        self.rungs = (*self.rungs, words)
        self.observer.rung(words)
