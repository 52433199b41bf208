"""A host without torch: small drawn pictures, a short pause a step, and moving memory figures, labelled simulated."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.host_port import (
    Choice,
    DeliveredImage,
    HostInfo,
    ImageRequest,
    JobObserver,
    JobResult,
    Prediction,
)
from sd_webui_spillway.memory.snapshot import MemoryProvider, Reading
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.timing.image_record import ImageRecord, Outcome
from sd_webui_spillway.units import GIB, MIB, format_bytes

CARD_BYTES = 4 * GIB
WEIGHTS_BYTES = 2 * GIB
OOM_PROMPT, LOST_PROMPT, DEAD_PROMPT = "run out", "lose one", "make nothing"
"""A prompt with these words plans what happens: a rung, an image given up, or a job that fails whole."""


class FakeMemory:
    """A provider whose figures move at every reading, between what was placed and a little more."""

    name = "fake card"

    def __init__(self) -> None:
        self.placed_bytes = WEIGHTS_BYTES
        self.activation_bytes = 0
        self.spilled_bytes = 0
        self._tick = 0

    def read(self) -> Reading:
        self._tick += 1
        wave = (self._tick * 37 % 50) * 4 * MIB
        process = self.placed_bytes + self.activation_bytes + wave
        return Reading(
            values={
                "device_name": "Fake card",
                "simulated": True,
                "dedicated_total_bytes": CARD_BYTES,
                "dedicated_limit_bytes": CARD_BYTES,
                "dedicated_used_bytes": min(CARD_BYTES, process + 300 * MIB),
                "dedicated_process_bytes": process,
                "shared_pinned_bytes": 512 * MIB,
                "shared_spilled_bytes": self.spilled_bytes,
                "ram_total_bytes": 16 * GIB,
                "ram_used_bytes": 6 * GIB + wave,
            }
        )


@dataclass
class FakeHost:
    """Fulfils :class:`~sd_webui_spillway.host_port.Host`; what a prompt plans is in the constants above."""

    step_pause_seconds: float = 0.01
    memory: FakeMemory = field(default_factory=FakeMemory)
    switched: list[Profile] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    closed: bool = False
    makes_its_own_images: bool = False
    _warm: bool = False

    def info(self) -> HostInfo:
        return HostInfo(
            name="fake",
            model="drawn <b>shapes</b>",
            device_name="Fake card",
            simulated=True,
            notices=("There is no GPU here; memory is counted on a simulated card of 4.0 GiB (runs on the CPU).",),
            samplers=("default", "euler", "dpm++ 2m"),
            default_size=(64, 64),
            makes_its_own_images=self.makes_its_own_images,
            unavailable_profiles={
                Profile.SEQUENTIAL: "it has not been measured on a real GPU yet",
                Profile.STREAM: "it needs a CUDA card, whose copy engine works beside the computation",
                Profile.SPILL: "it needs a CUDA card, whose copy engine works beside the computation",
            },
        )

    def memory_providers(self) -> tuple[MemoryProvider, ...]:
        return (self.memory,)

    def turn(self):
        return nullcontext()

    def switch(self, profile: Profile) -> None:
        self.switched.append(profile)
        self.memory.placed_bytes = WEIGHTS_BYTES if profile is Profile.DEDICATED else WEIGHTS_BYTES // 2

    def predict(self, request: ImageRequest) -> Mapping[Profile, Prediction]:
        activations = request.width * request.height * request.batch_size * 4096
        shares = {Profile.DEDICATED: 1.0, Profile.MEDVRAM: 0.7, Profile.LOWVRAM: 0.3, Profile.SEQUENTIAL: 0.1}
        return {
            profile: Prediction(
                dedicated_bytes=int(share * WEIGHTS_BYTES) + activations,
                fits=int(share * WEIGHTS_BYTES) + activations <= CARD_BYTES,
                note="",
                shared_bytes=WEIGHTS_BYTES // 4 if profile is Profile.LOWVRAM else None,
            )
            for profile, share in shares.items()
        }

    def choose(self, request: ImageRequest) -> Choice:
        for profile, prediction in self.predict(request).items():
            if prediction.fits and profile is not Profile.SEQUENTIAL:
                reason = f"{profile}: it needs {format_bytes(prediction.dedicated_bytes)} of the 4.0 GiB that are free."
                return Choice(profile, reason, prediction.dedicated_bytes)
        return Choice(Profile.LOWVRAM, "lowvram: it needs 4.1 GiB of the 4.0 GiB that are free.", None)

    def generate(
        self, request: ImageRequest, profile: Profile, job_id: str, folder: Path, observer: JobObserver
    ) -> JobResult:
        if DEAD_PROMPT in request.prompt:
            raise UnavailableError("The fake card has no memory left at all.", detail="RuntimeError: planned")
        self.threads.add(threading.current_thread().name)
        used = self.choose(request).profile if profile is Profile.AUTO else profile
        observer.profile(used)
        delivered: list[DeliveredImage] = []
        given_up: list[ImageRecord] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.memory.activation_bytes = GIB // 2
        try:
            for batch in range(request.batch_count):
                if not self._run_batch(request, batch, used, profile, job_id, folder, observer, delivered, given_up):
                    break
        finally:
            self.memory.activation_bytes = 0
        stopped = observer.stop_requested()
        return JobResult(job_id, tuple(delivered), tuple(given_up), (), stopped)

    def close(self) -> None:
        self.closed = True

    def _run_batch(
        self, request: ImageRequest, batch: int, used: Profile, asked: Profile, job_id: str, folder: Path,
        observer: JobObserver, delivered: list[DeliveredImage], given_up: list[ImageRecord],
    ) -> bool:
        """One batch; False where a stop was asked for."""
        started = time.time()
        rungs: tuple[str, ...] = ()
        observer.stage("encode")
        sampling = time.perf_counter()
        for step in range(1, request.steps + 1):
            if observer.stop_requested():
                return False
            observer.step(step, request.steps)
            time.sleep(self.step_pause_seconds)
            if observer.takes_step_down():
                words = f"asked for less on the card at step {step} of {request.steps}: went from {used} to lowvram"
                observer.rung(words)
                rungs, used = (words,), Profile.LOWVRAM
                observer.profile(used)
            if step == 1 and batch == 0 and OOM_PROMPT in request.prompt:
                words = (
                    f"UNet ran out at step 1 of {request.steps} with 3.9 GiB of 4.0 GiB in use: "
                    f"went from {used} to {Profile.LOWVRAM}"
                )
                observer.rung(words)
                rungs = (words,)
                used = Profile.LOWVRAM
                observer.profile(used)
        sampled = time.perf_counter() - sampling
        observer.stage("decode")
        for index in range(request.batch_size):
            lost = LOST_PROMPT in request.prompt and batch == 0 and index == 1
            seed = request.seed + batch * request.batch_size + index
            path = None if lost else _draw(folder, job_id, request, seed)
            record = self._record(
                request, index, seed, used, asked, job_id, started, sampled / request.batch_size, path, rungs
            )
            observer.image(record)
            if path is None:
                given_up.append(record)
            else:
                delivered.append(DeliveredImage(record, path))
            self._warm = True
        return True

    def _record(
        self, request: ImageRequest, index: int, seed: int, used: Profile, asked: Profile, job_id: str, started: float,
        sample_seconds: float, path: Path | None, rungs: tuple[str, ...],
    ) -> ImageRecord:
        # The seed shows in the total, so that no two images of a test have the same badge.
        decode_seconds = 0.02 + (seed % 97) * 0.01
        return ImageRecord(
            record_id=uuid.uuid4().hex, job_id=job_id, started_at=started + index * 0.001, host="fake",
            model=self.info().model, device_name="Fake card", simulated=True, width=request.width,
            height=request.height, steps=request.steps, sampler=request.sampler, seed=seed,
            batch_size=request.batch_size, batch_index=index, profile_asked=asked.value, profile_used=used.value,
            encode_seconds=0.01, sample_seconds=sample_seconds, hires_seconds=None, decode_seconds=decode_seconds,
            save_seconds=0.005, total_seconds=0.015 + sample_seconds + decode_seconds,
            steps_per_second=request.steps / max(1e-6, sample_seconds * request.batch_size), warm_up=not self._warm,
            peak_dedicated_bytes=WEIGHTS_BYTES + 600 * MIB, peak_shared_bytes=512 * MIB,
            estimated_dedicated_bytes=WEIGHTS_BYTES + 500 * MIB, moved_bytes=200 * MIB, rungs=rungs,
            outcome=Outcome.GIVEN_UP if path is None else Outcome.DELIVERED,
            message="The UNet does not fit in 4.0 GiB however small its work is made" if path is None else None,
            file_path=str(path) if path else None,
        )


def _draw(folder: Path, job_id: str, request: ImageRequest, seed: int) -> Path:
    """A picture that differs by seed: light ones and dark ones, so that a badge is tried on both."""
    width, height = request.width, request.height
    back = (245, 245, 240) if seed % 2 else (18, 22, 34)
    picture = Image.new("RGB", (width, height), back)
    draw = ImageDraw.Draw(picture)
    colour = ((seed * 71) % 256, (seed * 131 + 80) % 256, (seed * 37 + 160) % 256)
    draw.ellipse((width * 0.2, height * 0.2, width * 0.8, height * 0.8), fill=colour)
    path = folder / f"{job_id[:8]}-{seed:05d}.png"
    picture.save(path)
    return path
