"""What AUTOMATIC1111 hands to the components of a checkpoint, for counting activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ...host_port import ImageRequest
from ...placement.component import Component, ComponentKind
from ...planning.activation_meter import Inputs, fake_dtype
from ..footprint_meter import rows_per_call
from . import counting

_TOKENS = 77
_LATENT_FACTOR = 8


class CheckpointShapes:
    """The calls of a model in the original layout: :class:`~..footprint_meter.CallShapes`.

    The text encoders are not counted: the host hands them words, not tensors."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def counts(self, component: Component) -> bool:
        return component.kind in (ComponentKind.UNET, ComponentKind.VAE)

    def adapt(self, copy: nn.Module) -> None:
        counting.adapt(copy)

    def inputs(self, component: Component, call: str, request: ImageRequest) -> Inputs:
        rows = rows_per_call(component, request)
        height, width = request.height // _LATENT_FACTOR, request.width // _LATENT_FACTOR
        weight = next(component.module.parameters())
        dtype = fake_dtype(torch.float16) if weight.element_size() < 4 else weight.dtype  # 8 bits are for weights only
        if component.kind is ComponentKind.VAE:
            latent = (rows, getattr(self._model, "latent_channels", 4), height, width)
            shape = latent if call == "decode" else (rows, 3, request.height, request.width)
            return (torch.zeros(shape, dtype=dtype),), {}
        unet: Any = component.module.diffusion_model
        sample = torch.zeros((rows, unet.in_channels, height, width), dtype=dtype)
        steps = torch.zeros((rows,), dtype=dtype)
        if hasattr(unet, "context_embedder"):  # SD 3
            words = torch.zeros((rows, 2 * _TOKENS, unet.context_embedder.in_features), dtype=dtype)
            pooled = torch.zeros((rows, unet.y_embedder.mlp[0].in_features), dtype=dtype)
            return (sample, steps), {"c_crossattn": words, "y": pooled}
        context = torch.zeros((rows, _TOKENS, _context_width(unet)), dtype=dtype)
        if getattr(self._model, "conditioner", None) is None:
            return (sample, steps), {"c_crossattn": [context]}
        added = torch.zeros((rows, _added_width(unet)), dtype=dtype)
        return (sample, steps, {"crossattn": context, "vector": added}), {}

    def vae_channels(self) -> tuple[int, ...]:
        decoder = self._model.first_stage_model.decoder
        levels = [level.block[0].conv2.out_channels for level in decoder.up]
        return tuple(levels)

    def vae_item_bytes(self) -> int:
        size: int = next(self._model.first_stage_model.parameters()).element_size()
        return size


def _context_width(unet: Any) -> int:
    """Of the text's vectors: what the first attention to them reads."""
    for name, module in unet.named_modules():
        if name.endswith("attn2.to_k"):
            return int(module.in_features)
    return 768


def _added_width(unet: Any) -> int:
    """Of SDXL's pooled text and size vector."""
    return int(unet.label_emb[0][0].in_features)
