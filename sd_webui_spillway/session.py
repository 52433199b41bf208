"""One object owns all state: the host, the memory monitor, the image log, the settings and the running job."""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import BadInputError, StorageError, UnavailableError
from .host_port import Choice, Host, HostInfo, ImageRequest, JobProgress, JobResult
from .job import JobTracker
from .memory.cap import shared_cap_bytes
from .memory.monitor import Monitor
from .memory.shared_ledger import SharedLedger
from .memory.snapshot import MemorySnapshot
from .placement.profile import PROFILES, SPILL_BY_DRIVER, Profile
from .settings import Settings, SettingsFile
from .timing.image_log import ImageLog
from .timing.image_record import ImageRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProfileRow:
    """A profile as the panel lists it, at the size and batch now asked for."""

    profile: Profile
    summary: str
    trade_off: str
    in_use: bool
    unavailable_because: str | None
    predicted_dedicated_bytes: int | None
    predicted_shared_bytes: int | None
    fits: bool | None
    note: str
    measured_seconds: float | None
    """Median of this machine's log at this size, warm-up images apart."""
    measured_count: int


CHANGEABLE = (
    "badges", "dedicated_percent", "vae_tiling", "ladder_tile", "ladder_smaller_placement", "ladder_split_rows",
    "infotext", "spill_kind",
)
"""The fields of :class:`~.settings.Settings` that take effect by being set."""


class Session:
    """Built once per process. Every public method may be called from any thread; jobs and switches take turns."""

    def __init__(
        self,
        host: Host,
        monitor: Monitor,
        log: ImageLog,
        settings: SettingsFile,
        output_folder: Path,
        ledger: SharedLedger | None = None,
    ) -> None:
        """``ledger`` is where the host reserves what it pins; the session keeps its cap."""
        self._host = host
        self._ledger = ledger or SharedLedger()
        self._settings = settings
        self._busy = threading.Lock()
        self._closing = False
        self._job: JobTracker | None = None
        self._last_job: JobResult | None = None
        self.monitor = monitor
        self.log = log
        self.output_folder = output_folder
        monitor.start()

    @property
    def settings(self) -> Settings:
        return self._settings.value

    def on_settings(self, listener: Callable[[Settings], None]) -> Callable[[], None]:
        """Tell ``listener`` of every change of the settings, wherever it is made; what is returned ends it."""
        return self._settings.on_change(listener)

    @property
    def ledger(self) -> SharedLedger:
        """What of shared memory is reserved, and the cap on it."""
        return self._ledger

    def info(self) -> HostInfo:
        return self._host.info()

    def memory(self) -> MemorySnapshot:
        return self.monitor.latest()

    def cap_bytes(self) -> int:
        """The cap on shared memory now in force."""
        return shared_cap_bytes(self.memory().ram_total_bytes, self.settings.cap_bytes, self.settings.cap_ram_percent)

    def set_cap(self, cap_bytes: int | None, cap_ram_percent: float | None) -> int:
        """Set the cap by size, by share of RAM, by both (the lower holds) or by neither (the default); returns it.

        Raises:
            BadInputError: out of range. StorageError: in force, but not saved.
        """
        cap = shared_cap_bytes(self.memory().ram_total_bytes, cap_bytes, cap_ram_percent)
        self._ledger.set_cap(cap)
        self._settings.change(cap_bytes=cap_bytes, cap_ram_percent=cap_ram_percent)
        return cap

    def change_settings(self, /, **changes: Any) -> Settings:
        """Set any of :data:`CHANGEABLE`, and save them; the profile and the cap have methods of their own.

        Raises:
            BadInputError: no such setting, or no value it can have. UnavailableError: not on this machine.
            StorageError: in force, but not saved.
        """
        for name, value in changes.items():
            if name not in CHANGEABLE:
                raise BadInputError(f"There is no setting “{name}”; choose one of {', '.join(CHANGEABLE)}.")
            reason = self.unavailable_choices().get(name, {}).get(str(value))
            if reason:
                raise UnavailableError(f"The setting {name} cannot be “{value}”, because {reason}.")
        replace(self.settings, **changes).validated()
        return self._settings.change(**changes)

    def unavailable_choices(self) -> Mapping[str, Mapping[str, str]]:
        """By setting, then by value: why this machine lacks it."""
        if sys.platform == "win32":
            return {}
        return {"spill_kind": {"driver": "only the graphics driver of Windows moves memory by itself"}}

    def set_profile(self, profile: Profile) -> float:
        """Switch the placement now and remember the choice; returns the seconds it took.

        Raises:
            UnavailableError: this version or machine lacks the profile, or a job is running.
            SpillwayError: the switch failed; the profile before is back in force.
        """
        reason = self.unavailable_because(profile)
        if reason:
            raise UnavailableError(f"The profile “{profile}” is unavailable, because {reason}.")
        started = time.perf_counter()
        with self._host.turn(), self._exclusive():
            self._host.switch(profile)
            self._settings.change(profile=profile)
        return time.perf_counter() - started

    def profile_rows(self, request: ImageRequest) -> list[ProfileRow]:
        """Every profile, available or not, with what it would need for this request and what it took before."""
        predictions = self._host.predict(request)
        model = self.info().model
        rows = []
        for profile, info in PROFILES.items():
            if profile is Profile.SPILL and self.settings.spill_kind == "driver":
                info = SPILL_BY_DRIVER
            prediction = predictions.get(profile)
            median = self.log.median_seconds(profile.value, model, request.width, request.height, request.steps)
            rows.append(
                ProfileRow(
                    profile=profile,
                    summary=info.summary,
                    trade_off=info.trade_off,
                    in_use=profile is self.settings.profile,
                    unavailable_because=self.unavailable_because(profile),
                    predicted_dedicated_bytes=prediction.dedicated_bytes if prediction else None,
                    predicted_shared_bytes=prediction.shared_bytes if prediction else None,
                    fits=prediction.fits if prediction else None,
                    note=prediction.note if prediction else "",
                    measured_seconds=median.seconds if median else None,
                    measured_count=median.count if median else 0,
                )
            )
        return rows

    def choose(self, request: ImageRequest) -> Choice:
        """What ``auto`` would take for this request."""
        return self._host.choose(request)

    def generate(self, request: ImageRequest, profile: Profile | None = None) -> JobResult:
        """Make the images and log each. ``profile`` holds for this job only; without it the session's own is used.

        Raises:
            BadInputError: the request makes no sense. UnavailableError: a job is running already.
            SpillwayError: nothing could be made.
        """
        request = request.validated()
        profile = profile or self.settings.profile
        reason = self.unavailable_because(profile)
        if reason:
            raise BadInputError(f"The profile “{profile}” is unavailable, because {reason}.")
        samplers = self.info().samplers
        if request.sampler not in samplers:
            raise BadInputError(f"There is no sampler “{request.sampler}”; choose one of {', '.join(samplers)}.")
        with self._running(request, profile) as job:
            job.result = self._host.generate(request, profile, job.job_id, self.output_folder, job.tracker)
        return job.result

    @contextmanager
    def foreign_job(self, request: ImageRequest, profile: Profile | None = None) -> Iterator[RunningJob]:
        """A job that the host makes by itself, from here to the end of the block; leave in :attr:`RunningJob.result`
        what came of it.

        Raises:
            UnavailableError: another job is running, or a switch is.
        """
        with self._running(request, profile or self.settings.profile) as job:
            yield job

    def stop(self) -> bool:
        """Ask the running job to end; False where none runs."""
        job = self._job
        if job is None:
            return False
        job.request_stop()
        return True

    def step_down(self) -> bool:
        """Ask the running job to go on with less on the card, from the next call of a component on; False where none
        runs. The profile that was chosen is back after the job.

        Raises:
            UnavailableError: there is no smaller placement.
        """
        job = self._job
        if job is None:
            return False
        profile = job.progress().profile
        if profile == Profile.SEQUENTIAL.value:
            raise UnavailableError(f"Nothing smaller than {profile} is left; the job goes on as it is.")
        job.request_step_down()
        return True

    def progress(self) -> JobProgress | None:
        """The running job, or ``None``."""
        job = self._job
        return job.progress() if job else None

    def last_job(self) -> JobResult | None:
        """The last job that ended in this session."""
        return self._last_job

    def close(self) -> None:
        """Stop the monitor, undo every placement, close the log."""
        self._closing = True
        self.stop()
        self.monitor.stop()
        with self._busy:
            try:
                self._host.close()
            finally:
                self.log.close()

    def unavailable_because(self, profile: Profile) -> str | None:
        """Why this version, host or machine lacks the profile; ``None`` where it has it."""
        return PROFILES[profile].unavailable_because or self.info().unavailable_profiles.get(profile)

    @contextmanager
    def _running(self, request: ImageRequest, profile: Profile) -> Iterator[RunningJob]:
        with self._exclusive():
            failures: list[str] = []
            notices_before = len(self.log.notices)
            with _Recorder(self.log, self.monitor, failures) as recorder:
                job = RunningJob(JobTracker(uuid.uuid4().hex, request, profile, recorder.image, recorder.batch))
                self._job = job.tracker
                if self._closing:
                    job.tracker.request_stop()  # close() looked before this job was there to be stopped
                try:
                    yield job
                finally:
                    self._job = None
                    if job.result is not None:
                        notices = (*job.result.notices, *failures, *self.log.notices[notices_before:])
                        self._last_job = job.result = replace(job.result, notices=notices)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise UnavailableError("A job is running; wait for it or stop it first.")
        try:
            if self._closing:
                raise UnavailableError("This session is closed.")
            self._ledger.set_cap(self.cap_bytes())  # a container's limit may have changed
            yield
        finally:
            self._busy.release()


class RunningJob:
    """One job while it runs."""

    def __init__(self, tracker: JobTracker) -> None:
        self.tracker = tracker
        """What the host tells of its progress and its images."""
        self.result: JobResult | None = None
        """What came of it; ``None`` leaves no result behind. What the session knows of it is added at the end."""

    @property
    def job_id(self) -> str:
        return self.tracker.job_id


class _Recorder(ExitStack):
    """Completes each image's record and writes it; a log that cannot be written is said once and costs no image."""

    def __init__(self, log: ImageLog, monitor: Monitor, failures: list[str]) -> None:
        super().__init__()
        self._log = log
        self._monitor = monitor
        self._failures = failures
        self._watch = self.enter_context(monitor.watch())

    def batch(self) -> None:
        self.close()
        self._watch = self.enter_context(self._monitor.watch())

    def image(self, record: ImageRecord) -> ImageRecord:
        record = replace(record, peak_shared_bytes=self._watch.peak("shared_used_bytes"))
        try:
            self._log.append(record)
        except StorageError as error:
            logger.warning("%s", error)
            if str(error) not in self._failures:
                self._failures.append(str(error))
        return record
