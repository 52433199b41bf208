"""All stages of training in their order: tokenizer, autoencoder, denoiser, LoRA, classifier; then the model's files."""

from __future__ import annotations

import importlib
import platform
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import UnavailableError
from ..building import Modules, empty_modules
from ..families import ModelConfig
from .autoencoder import AutoencoderTraining
from .classifier_training import train_classifier
from .denoiser import Denoiser, DenoiserTraining
from .latents import LatentBank, encode
from .loop import Clock, Report
from .lora_training import LoraTraining
from .picture_bank import Bank, Order, draw_bank
from .recipe import Recipe
from .release import release
from .samples import write_samples
from .store import Store
from .tokenizer import make_tokenizer, token_ids

AUTOENCODER, DENOISER, STRIPED, CLASSIFIER = "autoencoder", "denoiser", "striped", "classifier"
_PACKAGES = ("diffusers", "transformers", "tokenizers", "peft", "safetensors")
_FIRST_LATENTS = 2_000
"""Pictures whose latents' deviation sets the scaling factor."""


def require_packages() -> None:
    """Raises UnavailableError where a package that training needs is missing, before anything is begun."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UnavailableError(f"Training is unavailable, because {', '.join(missing)} is not installed.")


def can_compile(device: torch.device) -> bool:
    """Whether torch's compiler has what it needs: a GPU, Linux and Triton."""
    return device.type == "cuda" and platform.system() == "Linux" and importlib.util.find_spec("triton") is not None


@dataclass
class Training:
    """One run in one folder. ``run`` goes on from whatever is finished there."""

    recipe: Recipe
    store: Store
    device: torch.device
    report: Report
    clock: Clock

    def run(self) -> Path:
        """Everything that is not done yet; the folder with the finished model.

        Raises:
            PausedError: the clock ran out; the same call goes on from there.
            BadInputError: the folder holds a run of another recipe.
            UnavailableError: a package is missing.
            StorageError: the folder cannot be written.
        """
        require_packages()
        self.store.open_for(self.recipe)
        self.store.note(device=_device_name(self.device), torch=torch.__version__)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = self.device.type == "cuda"
        tokenizer = make_tokenizer(self.store.folder / "tokenizer", self.recipe.seed, self.recipe.merges)
        config = self.recipe.config(len(tokenizer))
        with ThreadPoolExecutor(1) as drawing:
            banks = self._begin_drawing(drawing)
            modules = self._fresh(config)
            self._autoencoder(modules.vae, banks)
            self._denoiser(modules, tokenizer, banks)
            self._striped(modules, tokenizer, banks)
        self._classifier()
        return release(self.store, self.recipe.config(len(tokenizer), self._scaling_factor()), modules)

    def _begin_drawing(self, pool: ThreadPoolExecutor) -> dict[str, Future[Bank]]:
        """Orders of pictures, drawn beside the training, each stage's only where it is still to come."""
        recipe, seed = self.recipe, self.recipe.seed
        orders: dict[str, Order] = {}
        if not self.store.has(AUTOENCODER):
            orders[AUTOENCODER] = Order(seed + 1, recipe.autoencoder.pictures, 256, every_combination=True)
        if not self.store.has(DENOISER):
            orders |= {
                f"{DENOISER} {side}": Order(seed + 2, count, side) for side, count in recipe.denoiser.pictures.items()
            }
        if not self.store.has(STRIPED):
            orders[STRIPED] = Order(seed + 3, recipe.lora.pictures, recipe.side_pixels, striped=True)
        return {name: pool.submit(draw_bank, order) for name, order in orders.items()}

    def _fresh(self, config: ModelConfig) -> Modules:
        """The networks before training. Their weights are drawn as their own classes do it, from the seed."""
        empty = empty_modules(config)
        made = []
        for module in (empty.unet, empty.vae, *empty.text_encoders):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.recipe.seed)
                kind: Any = type(module)
                settings: Any = module.config
                fresh = kind.from_config(settings) if hasattr(kind, "from_config") else kind(settings)
            made.append(fresh.to(self.device, memory_format=torch.channels_last))
        unet, vae, *text_encoders = made
        return Modules(unet, vae, tuple(text_encoders))

    def _autoencoder(self, vae: nn.Module, banks: dict[str, Future[Bank]]) -> None:
        if not self.store.has(AUTOENCODER):
            with self._timed(AUTOENCODER):
                drawings = banks[AUTOENCODER].result().drawings
                training = AutoencoderTraining(vae, drawings, self.recipe.autoencoder, self.device, self.recipe.seed)
                trained = training.run(self.store.state_file(AUTOENCODER), self.report, self.clock)
                self.store.keep(AUTOENCODER, trained.state_dict())
        self.store.load_into(AUTOENCODER, vae)
        vae.requires_grad_(False).eval()

    def _denoiser(self, modules: Modules, tokenizer: Any, banks: dict[str, Future[Bank]]) -> None:
        model = Denoiser(modules.unet, modules.text_encoders[0])
        if not self.store.has(DENOISER):
            with self._timed("latents"):
                latents = {
                    side: self._encoded(f"{DENOISER} {side}", side, modules.vae, tokenizer, banks)
                    for side in self.recipe.denoiser.pictures
                }
            if self._scaling_factor() is None:
                first = latents[max(latents)].latents[:_FIRST_LATENTS].float()
                self.store.note(scaling_factor=round(float(1 / first.std()), 5))
            with self._timed(DENOISER):
                trained = self._train_denoiser(model, modules, tokenizer, latents)
                self.store.keep(DENOISER, trained.state_dict())
        self.store.load_into(DENOISER, model)
        model.requires_grad_(False).eval()

    def _train_denoiser(
        self, model: Denoiser, modules: Modules, tokenizer: Any, latents: dict[int, LatentBank]
    ) -> Denoiser:
        recipe = self.recipe
        silence = token_ids(tokenizer, [""])[0].long().to(self.device)

        def sample(averaged: Denoiser, done: int) -> None:
            write_samples(
                averaged, modules.vae, tokenizer, self._scaling_factor(), recipe, self.device,
                self.store.sample_file(done),
            )  # fmt: skip

        training = DenoiserTraining(
            model, latents, silence, self._scaling_factor(), recipe.denoiser, self.device, recipe.seed,
            can_compile(self.device),
        )  # fmt: skip
        return training.run(self.store.state_file(DENOISER), self.report, self.clock, sample)

    def _striped(self, modules: Modules, tokenizer: Any, banks: dict[str, Future[Bank]]) -> None:
        if self.store.has(STRIPED):
            return
        with self._timed(STRIPED):
            bank = self._encoded(STRIPED, self.recipe.side_pixels, modules.vae, tokenizer, banks)
            model = Denoiser(modules.unet, modules.text_encoders[0])
            training = LoraTraining(
                model, bank, self._scaling_factor(), self.recipe.lora, self.recipe.denoiser, self.device,
                self.recipe.seed,
            )  # fmt: skip
            added = training.run(self.store.state_file(STRIPED), self.report, self.clock)
            self.store.keep(STRIPED, added)

    def _classifier(self) -> None:
        target = self.store.folder / f"{CLASSIFIER}.safetensors"
        if target.is_file():
            return
        with self._timed(CLASSIFIER):
            stages: set[str] = set()

            def progress(what: str, done: int, total: int) -> None:
                if what not in stages:
                    stages.add(what)
                    self.report.stage(f"{CLASSIFIER}, {what}", total)
                self.report.step(done, None)

            train_classifier(self.device, self.recipe.seed, self.recipe.classifier, progress).save(target)

    def _encoded(
        self, name: str, side_pixels: int, vae: nn.Module, tokenizer: Any, banks: dict[str, Future[Bank]]
    ) -> LatentBank:
        bank = banks[name].result()
        self.report.stage(f"latents of {side_pixels}²", len(bank.drawings))
        return encode(vae, bank, tokenizer, side_pixels, self.device, lambda done, _total: self.report.step(done, None))

    def _scaling_factor(self) -> Any:
        return self.store.facts().get("scaling_factor")

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Notes the seconds of a stage, all runs together."""
        start = time.monotonic()
        try:
            yield
        finally:
            seconds = self.store.facts().get("seconds", {})
            seconds[stage] = round(seconds.get(stage, 0) + time.monotonic() - start, 1)
            self.store.note(seconds=seconds)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"

