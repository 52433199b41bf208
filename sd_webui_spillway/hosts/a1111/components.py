"""A model of AUTOMATIC1111 as components: what its big modules are and through which calls they are used.

Found by attributes, as the host's own ``lowvram`` module does (v1.10.1, modules/lowvram.py:43–120), so that SD 1, SD 2,
SDXL and SD 3 are one case each and a fork's fifth is no error.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import nn

from ...placement.component import Component, ComponentKind

_HIJACKED_FROM_OUTSIDE = "forward"


def components_of(model: Any) -> tuple[Component, ...]:
    """The components of a loaded checkpoint, in the order in which a job uses them."""
    found = [Component("text encoder", ComponentKind.TEXT_ENCODER, text := _text_module(model), _calls(text))]
    for name in ("depth_model", "embedder"):
        module = getattr(model, name, None)
        if isinstance(module, nn.Module):
            found.append(Component(name, ComponentKind.OTHER, module, {"forward": ()}))
    found.append(Component("unet", ComponentKind.UNET, model.model, {"forward": ()}))
    found.append(_vae(model.first_stage_model))
    return tuple(found)


def move_rest(model: nn.Module, components: Iterable[Component], device: torch.device) -> None:
    """Bring what belongs to no component (noise schedules) to where the model computes. The model then also says that
    it is there itself, which Lightning's modules keep track of."""
    inside = {id(part) for component in components for part in component.module.modules()}
    taken = {
        name: child for name, child in model._modules.items()
        if child is not None and any(id(part) in inside for part in child.modules())
    }
    try:
        for name in taken:
            model._modules[name] = None
        model.to(device)
    finally:
        model._modules.update(taken)


def whole_batch_because(component: Component) -> str | None:
    """Why a component needs all rows of its call at once; ``None`` where it does not.

    ControlNet and its like replace the UNet's own ``forward`` on the instance and keep the picture for the whole batch.
    """
    inner = getattr(component.module, "diffusion_model", None)
    if inner is not None and _HIJACKED_FROM_OUTSIDE in vars(inner):
        return "another extension has hooked the UNet and counts on the whole batch"
    return None


def tensors_of(components: Iterable[Component]) -> Iterable[torch.Tensor]:
    """Every weight and buffer of the components."""
    return chain.from_iterable(
        chain(component.module.parameters(), component.module.buffers()) for component in components
    )


def _text_module(model: Any) -> nn.Module:
    """SDXL's conditioner holds all its encoders; elsewhere the host puts its prompt reader around the encoder."""
    conditioner = getattr(model, "conditioner", None)
    module: nn.Module = conditioner if conditioner is not None else model.cond_stage_model
    return module


def _calls(module: nn.Module) -> dict[str, tuple[str, ...]]:
    return {call: () for call in ("encode", "forward") if callable(getattr(module, call, None))}


def _vae(module: Any) -> Component:
    encoding = ("encoder", "quant_conv")
    decoding = ("post_quant_conv", "decoder")
    halves = {name: child for name, child in module.named_children() if name in (*encoding, *decoding)}
    known = "encoder" in halves and "decoder" in halves
    return Component(
        "vae",
        ComponentKind.VAE,
        module,
        {
            "encode": tuple(name for name in encoding if name in halves) if known else (),
            "decode": tuple(name for name in decoding if name in halves) if known else (),
            "forward": (),
        },
        tileable={"encode": "encoder", "decode": "decoder"} if known else {},
    )
