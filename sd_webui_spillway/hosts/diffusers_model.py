"""A diffusers pipeline as components: what they are, what their calls need, and where the pipeline believes it runs."""

from __future__ import annotations

from typing import Any

import diffusers
import torch

from ..host_port import ImageRequest
from ..placement.component import Component, ComponentKind, parts
from ..placement.placements import largest_unit_bytes
from ..placement.profile import Profile
from ..placement.stream import smallest_ring_bytes
from ..planning.activation_meter import ActivationMeter, Inputs, fake_dtype
from ..planning.footprint import AllocatorOverhead, CallNeed, Footprint
from ..recovery.ladder import can_tile

_STRIP_ROWS, _STRIP_COPIES = 8, 10
"""The narrowest strip of a tiled VAE and how many copies of it live at once (see recovery.tiled_vae)."""


def components_of(pipeline: Any) -> tuple[Component, ...]:
    """The components of a Stable Diffusion or SDXL pipeline, in the order in which a job uses them."""
    found = [
        Component(name, ComponentKind.TEXT_ENCODER, getattr(pipeline, name), {"forward": ()})
        for name in ("text_encoder", "text_encoder_2")
        if getattr(pipeline, name, None) is not None
    ]
    found.append(Component("unet", ComponentKind.UNET, pipeline.unet, {"forward": ()}))
    vae = pipeline.vae
    quant = ("quant_conv",) if getattr(vae, "quant_conv", None) is not None else ()
    post_quant = ("post_quant_conv",) if getattr(vae, "post_quant_conv", None) is not None else ()
    found.append(
        Component(
            "vae",
            ComponentKind.VAE,
            vae,
            {"encode": ("encoder", *quant), "decode": (*post_quant, "decoder")},
            tileable={"encode": "encoder", "decode": "decoder"},
        )
    )
    return tuple(found)


def image_to_image(pipeline: Any) -> Any:
    """The image-to-image pipeline over the same components; nothing is loaded or copied."""
    if isinstance(pipeline, diffusers.StableDiffusionXLPipeline):
        return diffusers.StableDiffusionXLImg2ImgPipeline(**pipeline.components)
    return diffusers.StableDiffusionImg2ImgPipeline(**pipeline.components, requires_safety_checker=False)


class ExecutionDevice:
    """Makes a pipeline run on the card whatever its weights' places say; undone by :meth:`undo`.

    diffusers works out where to run from where the weights are, which is wrong for any placement that keeps them in
    system memory. A subclass of the same name answers instead; no class of diffusers is touched.
    """

    def __init__(self, pipeline: Any, device: torch.device) -> None:
        self._pipeline = pipeline
        self._before = type(pipeline)
        answer = property(lambda _: device)
        members = {"_execution_device": answer, "device": answer, "__module__": self._before.__module__}
        pipeline.__class__ = type(self._before.__name__, (self._before,), members)

    def undo(self) -> None:
        """Give the pipeline its own class back."""
        self._pipeline.__class__ = self._before


class FootprintMeter:
    """Works out footprints of requests. Make it before any guard or placement is on the model."""

    def __init__(
        self, pipeline: Any, components: tuple[Component, ...], overhead: AllocatorOverhead, *, streams: bool = False
    ) -> None:
        """``streams``: whether the card has the ``stream`` profile."""
        self._overhead = overhead
        self._pipeline = pipeline
        self._components = components
        self._meters = {component.name: ActivationMeter(component.module) for component in components}
        self._largest_unit = {
            profile: largest_unit_bytes(profile, components)
            for profile in (Profile.LOWVRAM, Profile.SEQUENTIAL)
        }
        if streams:
            self._largest_unit[Profile.STREAM] = smallest_ring_bytes(components)
        self._model_bytes = sum(_weights_bytes([component.module]) for component in components)
        self._activations: dict[tuple[Any, ...], int] = {}

    def footprint(self, request: ImageRequest) -> Footprint:
        """The footprint of one batch of this request."""
        calls = []
        for component in self._components:
            for call, modules in parts(component).items():
                if call == "encode" and request.init_image is None:
                    continue
                calls.append(self._need(component, call, modules, request))
        return Footprint(self._model_bytes, tuple(calls), self._overhead)

    def _need(self, component: Component, call: str, modules: Any, request: ImageRequest) -> CallNeed:
        whole = _weights_bytes(modules)
        key = (component.name, call, request.width, request.height, _rows(component, request))
        if key not in self._activations:
            self._activations[key] = self._meters[component.name].peak_bytes(
                call, lambda: self.example_inputs(component, call, request)
            )
        return CallNeed(
            component=component.name,
            call=call,
            weights_bytes={
                Profile.MEDVRAM: whole,
                **{profile: units.get(component.name, whole) for profile, units in self._largest_unit.items()},
            },
            activation_bytes=self._activations[key],
            tiled_activation_bytes=self._tiled_bytes(request) if can_tile(component, call) else None,
        )

    def example_inputs(self, component: Component, call: str, request: ImageRequest) -> Inputs:
        """Arguments of the shapes that the pipeline passes, filled with zeros."""
        rows = _rows(component, request)
        module: Any = component.module
        dtype = fake_dtype(module.dtype)
        height, width = request.height // 8, request.width // 8
        if component.kind is ComponentKind.TEXT_ENCODER:
            return (torch.zeros((rows, 77), dtype=torch.int64),), {"output_hidden_states": True}
        if component.kind is ComponentKind.VAE:
            channels = self._pipeline.vae.config.latent_channels
            shape = (rows, channels, height, width) if call == "decode" else (rows, 3, request.height, request.width)
            return (torch.zeros(shape, dtype=dtype),), {}
        config = module.config
        sample = torch.zeros((rows, config.in_channels, height, width), dtype=dtype)
        context = torch.zeros((rows, 77, config.cross_attention_dim), dtype=dtype)
        added = None
        if config.addition_embed_type == "text_time":
            pooled = torch.zeros((rows, self._pipeline.text_encoder_2.config.projection_dim), dtype=dtype)
            added = {"text_embeds": pooled, "time_ids": torch.zeros((rows, 6), dtype=dtype)}
        return (sample, torch.tensor(1), context), {"added_cond_kwargs": added}

    def _tiled_bytes(self, request: ImageRequest) -> int:
        """Strips at the picture's full size, or the middle block at an eighth of it, whichever is larger."""
        channels = self._pipeline.vae.config.block_out_channels
        size = torch.empty((), dtype=self._pipeline.vae.dtype).element_size()
        strip: int = request.width * channels[min(1, len(channels) - 1)] * _STRIP_ROWS
        middle: int = request.width // 8 * request.height // 8 * channels[-1]
        return max(strip, middle) * size * _STRIP_COPIES


def _rows(component: Component, request: ImageRequest) -> int:
    """Rows of one call: prompt and negative prompt for each image of a batch, one image at a time in the VAE."""
    if component.kind is ComponentKind.UNET:
        return request.batch_size * (2 if request.guidance_scale > 1 else 1)
    return 1


def _weights_bytes(modules: Any) -> int:
    tensors = {id(t): t.nbytes for module in modules for t in (*module.parameters(), *module.buffers())}
    return sum(tensors.values())
