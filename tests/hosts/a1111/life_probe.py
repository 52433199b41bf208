"""Runs inside AUTOMATIC1111, as the script of an extension: what can be found of us in the host, and "Reload UI"."""

from __future__ import annotations

import threading

from modules import (
    face_restoration,
    images,
    lowvram,
    processing,
    script_callbacks,
    sd_models,
    sd_vae,
    shared,
)
from modules import scripts as host_scripts

PLACES = (face_restoration, images, lowvram, processing, sd_models, sd_vae, processing.StableDiffusionProcessing,
          processing.StableDiffusionProcessingTxt2Img, processing.StableDiffusionProcessingImg2Img)


def ours(value: object) -> bool:
    return "spillway" in getattr(getattr(value, "__code__", None), "co_filename", "")


def traces() -> dict:
    model = shared.sd_model
    patched = [f"{place.__name__}.{name}" for place in PLACES for name, value in vars(place).items() if ours(value)]
    hooks, methods = [], []
    for name, module in model.named_modules():
        hooks += [name for hook in module._forward_pre_hooks.values() if ours(hook)]
        methods += [f"{name}.{key}" for key, value in vars(module).items() if ours(value)]
    host_hooks = sum(len(module._forward_pre_hooks) for module in model.modules()) - len(hooks)
    plots = [data.module for data in host_scripts.scripts_data if hasattr(data.module, "axis_options")]
    axes = [option.label for plot in plots for option in plot.axis_options if "Spillway" in option.label]
    return {
        "patched": patched, "hooks": hooks, "methods": methods, "host_hooks": host_hooks, "lowvram": model.lowvram,
        "axes": axes, "threads": [thread.name for thread in threading.enumerate()],
        "previews_beside": shared.parallel_processing_allowed, "title": model.sd_checkpoint_info.title,
        "loaded": len(sd_models.model_data.loaded_sd_models),
    }  # fmt: skip


def add_routes(_blocks, app) -> None:
    @app.get("/life")
    def life() -> dict:
        return traces()

    @app.post("/life/reload")
    def reload(order: dict) -> dict:
        shared.opts.data["disabled_extensions"] = order["disabled"]
        shared.opts.save(shared.config_filename)
        shared.state.request_restart()
        return {}


script_callbacks.on_app_started(add_routes)
