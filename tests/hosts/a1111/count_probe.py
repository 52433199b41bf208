"""Runs inside AUTOMATIC1111, as the script of an extension: counts the model as a GPU would have it, in half precision,
under each of the host's attentions."""

from __future__ import annotations

import torch
from modules import devices, script_callbacks, sd_hijack, shared
from modules import sd_hijack_optimizations as attentions

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.hosts.a1111.components import components_of
from sd_webui_spillway.hosts.a1111.shapes import CheckpointShapes
from sd_webui_spillway.hosts.footprint_meter import FootprintMeter
from sd_webui_spillway.planning.footprint import AllocatorOverhead

TYPES = ("dtype", "dtype_unet", "dtype_vae", "dtype_inference")


def counted(model, attention) -> dict:
    sd_hijack.undo_optimizations()
    attention.apply()
    meter = FootprintMeter(components_of(model), CheckpointShapes(model), AllocatorOverhead())
    footprint = meter.footprint(ImageRequest(width=512, height=512))
    return {"unknown": footprint.unknown_because, **{need.component: need.activation_bytes for need in footprint.calls}}


def start(_blocks, app) -> None:
    @app.post("/count")
    def count(order: dict) -> dict:
        model, types = shared.sd_model, {name: getattr(devices, name) for name in TYPES}
        schedule, model.alphas_cumprod = model.alphas_cumprod, None
        model.half()
        for name in TYPES:
            setattr(devices, name, torch.float16)
        found: list = []
        attentions.list_optimizers(found)
        try:
            return {attention.name: counted(model, attention) for attention in found}
        finally:
            model.float()
            model.alphas_cumprod = schedule
            for name, value in types.items():
                setattr(devices, name, value)


script_callbacks.on_app_started(start)
