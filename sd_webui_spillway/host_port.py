"""What a session asks of a host, and what a host tells the session. No torch, no gradio: both sides import it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .errors import BadInputError
from .memory.snapshot import MemoryProvider
from .placement.profile import Profile
from .timing.image_record import ImageRecord

MAX_SIDE, MAX_STEPS, MAX_BATCH, MAX_COUNT = 8192, 1000, 64, 1000
MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class ImageRequest:
    """What to make: ``batch_count`` batches of ``batch_size`` images; image *i* of the job has seed ``seed + i``."""

    prompt: str = ""
    negative_prompt: str = ""
    width: int = 512
    height: int = 512
    steps: int = 20
    guidance_scale: float = 7.0
    sampler: str = "default"
    seed: int = 0
    batch_size: int = 1
    batch_count: int = 1
    init_image: Path | None = None
    """Start from this picture (img2img) instead of from noise."""
    strength: float = 0.6
    """img2img only: 0 keeps the picture, 1 ignores it."""

    @property
    def image_count(self) -> int:
        return self.batch_size * self.batch_count

    def validated(self) -> ImageRequest:
        """This request, if it can be made at all.

        Raises:
            BadInputError: with one sentence that names the field and its bounds.
        """
        for name, value, low, high in (
            ("width", self.width, 8, MAX_SIDE),
            ("height", self.height, 8, MAX_SIDE),
            ("steps", self.steps, 1, MAX_STEPS),
            ("batch size", self.batch_size, 1, MAX_BATCH),
            ("batch count", self.batch_count, 1, MAX_COUNT),
            ("seed", self.seed, 0, MAX_SEED),
        ):
            if not low <= value <= high:
                raise BadInputError(f"The {name} must be from {low} to {high}, not {value}.")
        for name, value in (("width", self.width), ("height", self.height)):
            if value % 8:
                raise BadInputError(f"The {name} must be a multiple of 8, not {value}.")
        if not 0 <= self.guidance_scale <= 100:
            raise BadInputError(f"The guidance scale must be from 0 to 100, not {self.guidance_scale}.")
        if not 0 < self.strength <= 1:
            raise BadInputError(f"The strength must be above 0 and at most 1, not {self.strength}.")
        if self.init_image is not None and not self.init_image.is_file():
            raise BadInputError(f"There is no picture at {self.init_image}.")
        if self.init_image is not None and int(self.steps * self.strength) < 1:
            raise BadInputError(
                f"A strength of {self.strength} leaves none of {self.steps} steps to be made; raise one of the two."
            )
        return self


@dataclass(frozen=True)
class Prediction:
    """What a profile would need for a request, before anything is moved."""

    dedicated_bytes: int | None
    """Peak on the card; ``None`` is unknown."""
    fits: bool | None
    note: str = ""
    """One sentence: why it fits or does not, and what would be done about it."""
    shared_bytes: int | None = None
    """Peak of system memory that the card borrows; ``None`` is unknown."""


@dataclass(frozen=True)
class Choice:
    """What ``auto`` would take for a request, and why, in one sentence."""

    profile: Profile
    reason: str
    estimated_dedicated_bytes: int | None = None


@dataclass(frozen=True)
class DeliveredImage:
    """One image that is finished and recorded."""

    record: ImageRecord
    path: Path | None
    """Where it is saved; ``None`` where the host was not to save it."""


@dataclass(frozen=True)
class JobResult:
    """What came of a job: every image that was made, and in words whatever was not."""

    job_id: str
    images: tuple[DeliveredImage, ...]
    given_up: tuple[ImageRecord, ...] = ()
    notices: tuple[str, ...] = ()
    interrupted: bool = False
    """Ended before every image was tried: the user stopped it, or the disk is full (a notice says so)."""
    unsaved_count: int = 0
    """Images that were made and could be saved nowhere (a notice names them)."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Of the images that are saved."""
        return tuple(image.path for image in self.images if image.path is not None)


@dataclass(frozen=True)
class JobProgress:
    """A running job at one moment, for a person waiting."""

    job_id: str
    image_index: int
    """Images finished so far."""
    image_count: int
    stage: str
    """One of :data:`~.timing.image_record.STAGES`, or ``"prepare"``."""
    step: int
    step_count: int
    profile: str
    elapsed_seconds: float
    remaining_seconds: float | None
    seconds_per_image: float | None
    rungs: tuple[str, ...] = ()
    """Every rung taken in this job so far, in words."""


class JobObserver(Protocol):
    """What a host calls while it works. Cheap, never raises; safe from the thread that runs the job."""

    def batch(self, index: int) -> None:
        """A batch begins; what is measured per image starts anew."""

    def stage(self, name: str) -> None: ...

    def step(self, index: int, count: int) -> None: ...

    def rung(self, words: str) -> None: ...

    def profile(self, profile: Profile) -> None: ...

    def image(self, record: ImageRecord) -> ImageRecord:
        """An image ended, delivered or given up. The session completes the record with what only it knows (the peak
        of shared memory), writes it to the log and returns it."""

    def stop_requested(self) -> bool: ...

    def takes_step_down(self) -> bool:
        """Whether the user has asked, since the last time this was asked, to go on with less on the card."""


@dataclass(frozen=True)
class HostInfo:
    """Who the host is and what it runs on."""

    name: str
    model: str
    device_name: str
    simulated: bool
    notices: tuple[str, ...] = ()
    """Sentences a person should see: "its weights are random", "the card is simulated"."""
    samplers: tuple[str, ...] = ("default",)
    default_size: tuple[int, int] = (512, 512)
    """Width and height that the model was made for."""
    unavailable_profiles: Mapping[Profile, str] = field(default_factory=dict)
    makes_its_own_images: bool = False
    """The program has pages of its own for making images: the panel shows no form, and :meth:`Host.generate` is never
    called; its jobs are reported through :meth:`~.session.Session.foreign_job`."""


class Host(Protocol):
    """The program that owns the model. ``switch``, ``generate`` and ``close`` are made under the session's job lock, so
    a host never sees two of them at once; the others may come at any time, while a job runs too."""

    def info(self) -> HostInfo: ...

    def memory_providers(self) -> tuple[MemoryProvider, ...]:
        """What this host knows of memory, asked before the machine's own providers."""

    def turn(self) -> AbstractContextManager[None]:
        """Held around a switch, and taken before the session's own lock: the host's turn among its own jobs.

        Raises:
            UnavailableError: one of its jobs is running.
        """

    def switch(self, profile: Profile) -> None:
        """Place the weights so, now, without reloading the model; ``AUTO`` leaves them and lets each job choose.

        Raises:
            SpillwayError: it cannot be done; the placement before is back in force.
        """

    def predict(self, request: ImageRequest) -> Mapping[Profile, Prediction]: ...

    def choose(self, request: ImageRequest) -> Choice:
        """What ``auto`` would take now."""

    def generate(
        self, request: ImageRequest, profile: Profile, job_id: str, folder: Path, observer: JobObserver
    ) -> JobResult:
        """Make the images under ``profile`` (``AUTO`` chooses first), each saved into ``folder``. Afterwards the
        placement is as the last :meth:`switch` set it.

        Raises:
            SpillwayError: nothing at all could be made.
        """

    def close(self) -> None: ...
