"""One batch of images: encode, sample, decode, save, each stage timed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ..errors import BadInputError, first_line
from ..host_port import DeliveredImage, ImageRequest, JobObserver
from ..placement.card import Card
from ..timing.image_record import ImageRecord, Outcome
from ..timing.stopwatch import Stopwatch
from .image_files import save_image


@dataclass(frozen=True)
class JobFacts:
    """What every image of a job has in common."""

    job_id: str
    host: str
    model: str
    request: ImageRequest
    profile_asked: str
    folder: Path
    estimated_dedicated_bytes: int | None


class InterruptedBatchError(Exception):
    """The user stopped the job; this batch was not finished."""


class Batch:
    """Makes the images ``first`` … ``first + size - 1`` of a job together.

    Encoding and sampling are shared: each image is charged an equal part. Decoding and saving are each image's own.
    """

    def __init__(
        self,
        facts: JobFacts,
        pipeline: Any,
        scheduler: Any,
        card: Card,
        observer: JobObserver,
        indices: Sequence[int],
        *,
        warm_up: bool,
        profile_used: Callable[[], str],
        rungs_taken: Callable[[], tuple[str, ...]],
    ) -> None:
        """
        Args:
            facts: of the job.
            pipeline: text-to-image, or image-to-image where the request has a starting picture.
            scheduler: a fresh one, which the pipeline takes for this batch.
            card: where it runs.
            observer: told of stages, steps and finished images.
            indices: places of these images in the job, from 0.
            warm_up: whether the model has not run since it was loaded or moved.
            profile_used: names the profile in force.
            rungs_taken: every rung since this batch began, in words.
        """
        self._facts = facts
        self._pipeline = pipeline
        self._scheduler = scheduler
        self._card = card
        self._observer = observer
        self._indices = indices
        self._warm_up = warm_up
        self._profile_used = profile_used
        self._rungs_taken = rungs_taken
        self._shared_rungs: tuple[str, ...] = ()
        self._step, self._step_count = 0, facts.request.steps
        self._sampling = False
        self._started_at = time.time()
        self._moved_before = card.moved_bytes
        self._shared_moved_bytes: int | None = None
        self._own: Stopwatch | None = None
        self._shared = self._stopwatch()
        self._shared_seconds = 0.0
        self._peak_bytes = 0
        self.notices: list[str] = []

    def _stopwatch(self) -> Stopwatch:
        return Stopwatch(synchronize=self._card.synchronize)

    def run(self, deliver: Callable[[int, DeliveredImage], None]) -> None:
        """Make, save and report the images in order, handing over each as soon as it is finished.

        Raises:
            LadderExhaustedError: a call of the batch fits in no way.
            InterruptedBatchError: the user stopped the job while it was sampling.
            StorageError: an image could be saved nowhere.
        """
        self._card.reset_peak()
        with torch.no_grad():
            latents = self._sample(self._encode())
            self._shared_seconds = self._shared.elapsed()
            self._peak_bytes = self._card.peak_bytes()
            self._shared_moved_bytes = self._card.moved_bytes - self._moved_before
            self._shared_rungs = self._rungs_taken()
            for place, index in enumerate(self._indices):
                deliver(index, self._finish(latents[place : place + 1], index))

    def whereabouts(self) -> str:
        """Where in the batch the work is, for the words of a rung."""
        return f"at step {self._step + 1} of {self._step_count}" if self._sampling else ""

    def _generators(self) -> list[torch.Generator]:
        """One per image, on the CPU, so that an image does not depend on the card or on its neighbours."""
        return [torch.Generator("cpu").manual_seed(self._seed(index)) for index in self._indices]

    def _seed(self, index: int) -> int:
        return (self._facts.request.seed + index) % 2**32

    def _encode(self) -> dict[str, Any]:
        request = self._facts.request
        with self._shared.stage("encode"):
            self._observer.stage("encode")
            encoded = self._pipeline.encode_prompt(
                prompt=request.prompt,
                negative_prompt=request.negative_prompt,
                device=self._card.device,
                num_images_per_prompt=len(self._indices),
                do_classifier_free_guidance=request.guidance_scale > 1,
            )
            names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
            inputs: dict[str, Any] = dict(zip(names, encoded, strict=False))
            inputs["generator"] = self._generators()
            if request.init_image is None:
                inputs.update(width=request.width, height=request.height)
            else:
                inputs.update(image=self._encode_picture(inputs["generator"]), strength=request.strength)
            return inputs

    def _encode_picture(self, generators: list[torch.Generator]) -> torch.Tensor:
        """Latents (N, C, H/8, W/8) of the starting picture. It is encoded once; each image draws its own sample."""
        request, vae = self._facts.request, self._pipeline.vae
        if request.init_image is None:
            raise ValueError("there is no starting picture")
        resized = _opened(request.init_image).resize((request.width, request.height), Image.Resampling.LANCZOS)
        pixels = self._pipeline.image_processor.preprocess(resized).to(self._card.device, vae.dtype)
        distribution = vae.encode(pixels).latent_dist
        samples = torch.cat([distribution.sample(generator) for generator in generators])
        latents: torch.Tensor = (samples * vae.config.scaling_factor).to(self._pipeline.unet.dtype)
        return latents

    def _sample(self, inputs: dict[str, Any]) -> torch.Tensor:
        request = self._facts.request
        pipeline = self._pipeline

        def after_step(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            del timestep
            self._step, self._step_count = index + 1, pipe.num_timesteps
            self._observer.step(self._step, self._step_count)
            if self._observer.stop_requested():
                pipe._interrupt = True
            return tensors

        with self._shared.stage("sample"):
            self._observer.stage("sample")
            self._sampling = True
            pipeline.scheduler = self._scheduler
            latents: torch.Tensor = pipeline(
                **inputs,
                num_inference_steps=request.steps,
                guidance_scale=request.guidance_scale,
                output_type="latent",
                callback_on_step_end=after_step,
            ).images
        self._sampling = False
        if self._observer.stop_requested():
            raise InterruptedBatchError
        return latents

    def _finish(self, latents: torch.Tensor, index: int) -> DeliveredImage:
        watch = self._own = self._stopwatch()
        self._moved_before = self._card.moved_bytes
        self._card.reset_peak()
        rungs_before = len(self._rungs_taken())
        with watch.stage("decode"):
            self._observer.stage("decode")
            picture = self._decode(latents)
        with watch.stage("save"):
            self._observer.stage("save")
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self._facts.job_id[:6]}-{index:04d}-{self._seed(index)}"
            record_id = uuid.uuid4().hex
            path, notice = save_image(picture, self._facts.folder, name, self._parameters(index, record_id))
        if notice:
            self.notices.append(notice)
        peak = max(self._peak_bytes, self._card.peak_bytes())
        record = self._record(
            index,
            watch,
            Outcome.DELIVERED,
            record_id=record_id,
            rungs=self._shared_rungs + self._rungs_taken()[rungs_before:],
            peak_dedicated_bytes=peak,
            file_path=str(path),
        )
        return DeliveredImage(self._observer.image(record), path)

    def _decode(self, latents: torch.Tensor) -> Any:
        vae = self._pipeline.vae
        scaled = latents.to(vae.dtype) / vae.config.scaling_factor
        pixels = vae.decode(scaled, return_dict=False)[0]
        return self._pipeline.image_processor.postprocess(pixels, output_type="pil")[0]

    def _parameters(self, index: int, record_id: str) -> dict[str, Any]:
        request = self._facts.request
        return {
            "record_id": record_id,
            "model": self._facts.model,
            "prompt": request.prompt,
            "negative_prompt": request.negative_prompt,
            "steps": request.steps,
            "sampler": request.sampler,
            "guidance_scale": request.guidance_scale,
            "seed": self._seed(index),
        }

    def given_up(self, message: str) -> ImageRecord:
        """The record of the one image of this batch, which could not be made."""
        return self._record(
            self._indices[0],
            self._own,
            Outcome.GIVEN_UP,
            record_id=uuid.uuid4().hex,
            rungs=self._rungs_taken(),
            peak_dedicated_bytes=max(self._peak_bytes, self._card.peak_bytes()),
            message=message,
        )

    def _moved_for_one(self, size: int) -> int:
        """An equal part of what the batch moved together, and all that was moved for this image alone."""
        since = self._card.moved_bytes - self._moved_before
        shared = self._shared_moved_bytes
        return since // size if shared is None else shared // size + since

    def _record(
        self,
        index: int,
        own: Stopwatch | None,
        outcome: Outcome,
        *,
        record_id: str,
        rungs: tuple[str, ...],
        peak_dedicated_bytes: int | None,
        file_path: str | None = None,
        message: str | None = None,
    ) -> ImageRecord:
        """``own`` timed what was done for this image alone."""
        size = len(self._indices)
        shared, request = self._shared.seconds, self._facts.request
        alone = own.seconds if own else {}
        sampled = shared.get("sample")
        return ImageRecord(
            record_id=record_id,
            job_id=self._facts.job_id,
            started_at=self._started_at,
            host=self._facts.host,
            model=self._facts.model,
            device_name=self._card.label,
            simulated=self._card.simulated,
            width=request.width,
            height=request.height,
            steps=request.steps,
            sampler=request.sampler,
            seed=self._seed(index),
            batch_size=size,
            batch_index=self._indices.index(index),
            profile_asked=self._facts.profile_asked,
            profile_used=self._profile_used(),
            encode_seconds=shared["encode"] / size if "encode" in shared else None,
            sample_seconds=sampled / size if sampled is not None else None,
            hires_seconds=None,
            decode_seconds=alone.get("decode"),
            save_seconds=alone.get("save"),
            total_seconds=(self._shared_seconds or self._shared.elapsed()) / size + (own.elapsed() if own else 0.0),
            steps_per_second=self._step / sampled if sampled else None,
            warm_up=self._warm_up,
            peak_dedicated_bytes=peak_dedicated_bytes,
            peak_shared_bytes=None,
            estimated_dedicated_bytes=self._facts.estimated_dedicated_bytes,
            moved_bytes=self._moved_for_one(size),
            rungs=rungs,
            outcome=outcome,
            message=message,
            file_path=file_path,
        )


def _opened(path: Path) -> Image.Image:
    """The picture in this file.

    Raises:
        BadInputError: it is none, it is cut short, or it cannot be read.
    """
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInputError(f"{path} cannot be read as a picture.", detail=first_line(error)) from error
