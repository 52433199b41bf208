"""A whole small model on a simulated card, and a job that uses every call of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import nn

from sd_webui_spillway.placement.component import Component, ComponentKind
from sd_webui_spillway.placement.placed_model import PlacedModel
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.guard import Guard
from sd_webui_spillway.recovery.ladder import Rung
from sd_webui_spillway.units import MIB

from .torch_models import TextEncoder, UNet, Vae

PLACEMENTS = (Profile.DEDICATED, Profile.MEDVRAM, Profile.LOWVRAM, Profile.SEQUENTIAL)
STEPS = 3


def make(module_class: Callable[[], nn.Module], seed: int = 0) -> Any:
    """A module with seeded weights, in inference form; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = module_class().eval()
        for parameter in module.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.02)
    return module


@cache
def _made(unet: Callable[[], nn.Module]) -> tuple[nn.Module, ...]:
    return make(TextEncoder, 1), make(unet, 2), make(Vae, 3)


def components(unet: Callable[[], nn.Module] = UNet) -> list[Component]:
    """New modules each time, their weights always the same."""
    text, unet_module, vae = copy.deepcopy(_made(unet))
    return [
        Component("text_encoder", ComponentKind.TEXT_ENCODER, text, {"forward": ()}),
        Component("unet", ComponentKind.UNET, unet_module, {"forward": ()}),
        Component(
            "vae", ComponentKind.VAE, vae,
            {"encode": ("encoder", "quant_conv"), "decode": ("decoder", "post_quant_conv")},
            tileable={"encode": "encoder", "decode": "decoder"},
        ),
    ]


def weights(parts: list[Component]) -> list[torch.Tensor]:
    """Every parameter and buffer, once."""
    return list({
        id(tensor): tensor for part in parts for tensor in chain(part.module.parameters(), part.module.buffers())
    }.values())


class Rig:
    """A placed, guarded model; ``rungs`` are the kinds and words of what the guard did."""

    def __init__(
        self, card: Any = None, unet: Callable[[], nn.Module] = UNet, guarded: bool = True, **guard: Any
    ) -> None:
        self.card = card or SimulatedCard(256 * MIB)
        self.components = components(unet)
        self.text, self.unet, self.vae = self.components
        self.model = PlacedModel(self.components, self.card)
        self.rungs: list[Rung] = []
        self.guard = Guard(self.model, on_rung=self.rungs.append, **guard)
        if guarded:
            self.guard.install()

    def on_card(self) -> set[int]:
        """The weights on the card, by identity."""
        return {id(tensor) for tensor in weights(self.components) if self.card.holds(tensor)}

    @torch.no_grad()
    def job(self, rows: int = 2, size: int = 16) -> dict[str, torch.Tensor]:
        """Text, encode, some steps, decode. Everything a user would see comes back."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            picture = torch.rand(rows, 3, size, size) * 2 - 1
            ids = torch.arange(rows * 6).view(rows, 6) % 50
            text = self.text.module(ids)
            latents = self.vae.module.encode(picture).latent_dist.mean
            encoded = latents.clone()
            for step in range(STEPS):
                added = {"time_ids": torch.ones(rows, 8) * 0.1}
                noise = self.unet.module(
                    latents, torch.tensor(900 - 300 * step), encoder_hidden_states=text.last_hidden_state, added=added
                ).sample
                latents = latents - 0.1 * noise
            decoded = self.vae.module.decode(latents).sample
        return {"text": text.last_hidden_state, "encoded": encoded, "latents": latents, "picture": decoded}

    def run_job(self, **shape: int) -> dict[str, torch.Tensor]:
        with self.guard.job():
            return self.job(**shape)


def unplaced_job(unet: Callable[[], nn.Module] = UNet, **shape: int) -> dict[str, torch.Tensor]:
    """The same job with no placement and no guard at all."""
    return Rig(unet=unet, guarded=False).job(**shape)


def assert_same(results: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Equal to the byte."""
    for name, tensor in expected.items():
        assert torch.equal(results[name], tensor), f"{name}: {(results[name] - tensor).abs().max()}"


def assert_close(results: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """What a person sees differs by no more than one part in 255 (pictures run from -1 to 1)."""
    for name, tensor in expected.items():
        assert (results[name] - tensor).abs().max() <= 2 / 255, name


class NarrowCard(SimulatedCard):
    """Says that almost nothing is free, so that strips are as narrow as they can be and wait in system memory."""

    def free_bytes(self) -> int:
        return 1
