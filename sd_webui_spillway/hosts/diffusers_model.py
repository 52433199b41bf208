"""A diffusers pipeline as components: what they are, what their calls need, and where the pipeline believes it runs."""

from __future__ import annotations

from typing import Any

import diffusers
import torch

from ..host_port import ImageRequest
from ..placement.component import Component, ComponentKind
from ..planning.activation_meter import Inputs, fake_dtype
from .footprint_meter import rows_per_call


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


class PipelineShapes:
    """What a pipeline hands to its components: :class:`~.footprint_meter.CallShapes`."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def counts(self, component: Component) -> bool:
        return True

    def adapt(self, copy: torch.nn.Module) -> None:
        """Nothing of a pipeline's hangs on its layers."""

    def inputs(self, component: Component, call: str, request: ImageRequest) -> Inputs:
        rows = rows_per_call(component, request)
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

    def vae_channels(self) -> tuple[int, ...]:
        return tuple(self._pipeline.vae.config.block_out_channels)

    def vae_item_bytes(self) -> int:
        size: int = torch.empty((), dtype=self._pipeline.vae.dtype).element_size()
        return size
