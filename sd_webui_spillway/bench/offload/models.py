"""The models that are measured: real architectures with random weights, made where they are wanted.

Time and memory do not depend on the values. They only have to keep a network of any depth finite, so each layer's
deviation is that of :func:`...models.random_weights.moments`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from ...models.families import TIME_IDS, TOKENS, published
from ...models.random_weights import moments
from ...units import GIB, KIB

Inputs = dict[str, Any]


@dataclass(frozen=True)
class ModelSpec:
    """One model and the work it is given."""

    name: str
    title: str
    dtype: torch.dtype
    weights_bytes: int
    """Roughly, for estimates; a child says what they really are."""
    budgets_bytes: tuple[int, ...]
    """The dedicated bytes that weights may take, cell by cell."""
    cap_bytes: int
    """The most that our own profiles may pin."""
    dedicated_seconds: float
    """Roughly, a step with every weight on the card, for estimates."""
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    """A step's arguments on the CPU, the same every time."""
    chunk_bytes: int | None = None
    """For our ring; ``None`` is its own choice."""
    rehearsal: bool = False
    """Meant for a processor, whose seconds mean nothing."""


def materialised(spec: ModelSpec, device: torch.device) -> nn.Module:
    """The model with random weights on this device, nothing of it made elsewhere first; the same ones every time.

    Raises:
        torch.cuda.OutOfMemoryError: they do not fit.
    """
    module = empty(spec, device)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            mean, deviation = moments(name, parameter.shape)
            parameter.normal_(mean, deviation, generator=generator)
        for buffer in module.buffers():
            buffer.zero_()
    return module


def copied(module: nn.Module, spec: ModelSpec) -> nn.Module:
    """The same weights in another module in system memory, each tensor by itself and not pinned."""
    copy = empty(spec, torch.device("cpu"))
    with torch.no_grad():
        for mine, its in zip(tensors(copy), tensors(module), strict=True):
            mine.copy_(its)
    return copy


def empty(spec: ModelSpec, device: torch.device) -> nn.Module:
    """The model with whatever its memory holds, ready for drawing only."""
    with torch.device("meta"):
        module = spec.build()
    return module.to(spec.dtype).to_empty(device=device).requires_grad_(False).eval()


def tensors(module: nn.Module) -> chain[torch.Tensor]:
    """Every weight and buffer, in order."""
    return chain(module.parameters(), module.buffers())


def _unet(family: Any, size: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        diffusers: Any = importlib.import_module("diffusers")
        unet: nn.Module = diffusers.UNet2DConditionModel(**published(family, size).unet)
        return unet

    return build


def _flux() -> nn.Module:
    """FLUX.1-dev's transformer: the class's defaults are its sizes, but for the embedded guidance."""
    diffusers: Any = importlib.import_module("diffusers")
    transformer: nn.Module = diffusers.FluxTransformer2DModel(guidance_embeds=True)
    return transformer


def _unet_inputs(family: Any, size: Any, side: int, dtype: torch.dtype) -> Callable[[], Inputs]:
    """A picture of ``side``² latent values, twice: with the prompt and without."""

    def inputs() -> Inputs:
        config = published(family, size).unet
        generator = torch.Generator().manual_seed(1)
        context = int(config["cross_attention_dim"])
        found: Inputs = {
            "sample": torch.randn(2, config["in_channels"], side, side, generator=generator).to(dtype),
            "timestep": torch.tensor(500),
            "encoder_hidden_states": torch.randn(2, TOKENS, context, generator=generator).to(dtype),
            "return_dict": False,
        }
        if "addition_embed_type" in config:
            vector = config["projection_class_embeddings_input_dim"] - config["addition_time_embed_dim"] * TIME_IDS
            pixels = float(side * 8)
            found["added_cond_kwargs"] = {
                "text_embeds": torch.randn(2, vector, generator=generator).to(dtype),
                "time_ids": torch.tensor([[pixels, pixels, 0, 0, pixels, pixels]] * 2).to(dtype),
            }
        return found

    return inputs


def _flux_inputs() -> Inputs:
    """1024²: 64 × 64 patches and 512 words, one picture; guidance is embedded, so there is no second row."""
    generator, side, words, dtype = torch.Generator().manual_seed(1), 64, 512, torch.bfloat16
    places = torch.zeros(side, side, 3)
    places[..., 1], places[..., 2] = torch.arange(side)[:, None], torch.arange(side)
    return {
        "hidden_states": torch.randn(1, side * side, 64, generator=generator).to(dtype),
        "encoder_hidden_states": torch.randn(1, words, 4096, generator=generator).to(dtype),
        "pooled_projections": torch.randn(1, 768, generator=generator).to(dtype),
        "timestep": torch.tensor([0.5]).to(dtype),
        "guidance": torch.tensor([3.5]).to(dtype),
        "img_ids": places.reshape(-1, 3).to(dtype),
        "txt_ids": torch.zeros(words, 3, dtype=dtype),
        "return_dict": False,
    }


_GB, _MB = 10**9, 10**6
_HALF = torch.float16
_SPECS = (
    ModelSpec(
        "sdxl", "SDXL UNet, 1024², batch 2, float16", _HALF, 5_135 * _MB,
        (600 * _MB, 1300 * _MB, 2600 * _MB, 3900 * _MB), 6 * GIB, 0.065,
        _unet("sdxl", "real"), _unet_inputs("sdxl", "real", 128, _HALF),
    ),
    ModelSpec(
        "flux", "transformer of FLUX.1-dev's size, 1024², batch 1, bfloat16", torch.bfloat16, 23_802 * _MB,
        (600 * _MB, 6 * _GB, 12 * _GB), 24 * GIB, 0.18, _flux, _flux_inputs,
    ),
    ModelSpec(
        "sd15", "SD 1.5 UNet, 512², batch 2, float16", _HALF, 1_719 * _MB,
        (200 * _MB, 500 * _MB, 900 * _MB, 1300 * _MB), 6 * GIB, 0.03,
        _unet("sd1", "real"), _unet_inputs("sd1", "real", 64, _HALF),
    ),
    ModelSpec(
        "tiny", "a small UNet for rehearsing, 64², batch 2, float32", torch.float32, 9 * _MB,
        (1 * _MB, 4 * _MB), 64 * _MB, 0.05,
        _unet("sd1", "tiny"), _unet_inputs("sd1", "tiny", 8, torch.float32), chunk_bytes=256 * KIB, rehearsal=True,
    ),
)  # fmt: skip
MODELS: Mapping[str, ModelSpec] = {spec.name: spec for spec in _SPECS}
"""By name, the most telling first. 24 GiB for Flux is more than the default cap: every cell names its own."""
