"""Runs inside AUTOMATIC1111 beside the extension, as the script of another one: out-of-memory planned over HTTP at any
step of a job, and what the extension's session knows of the job afterwards."""

from __future__ import annotations

import importlib

import torch
from modules import script_callbacks, scripts

from sd_webui_spillway.hosts.a1111 import plugin
from sd_webui_spillway.hosts.a1111.xyz import XyzAxes
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.recovery.method_patch import PatchSet
from sd_webui_spillway.timing.log_rows import LogFilter

PLACES = {
    "encode": ("modules.prompt_parser", "get_learned_conditioning"),
    "step": ("modules.sd_samplers_cfg_denoiser:CFGDenoiser", "forward"),
    "upscale": ("modules.images", "resize_image"),
    "vae_encode": ("modules.processing", "images_tensor_to_samples"),
    "decode": ("modules.processing", "decode_first_stage"),
    "face": ("modules.codeformer_model:FaceRestorerCodeFormer", "restore"),
    "load": ("modules.sd_models", "load_model_weights"),
    "lora_applied": ("network_lora:NetworkModuleLora", "calc_updown"),
}
"""Where memory can be made to run out: a module, or a class of it, and a function."""
OUTSIDE_JOBS = ("load",)


class Plan:
    """What fails: ``times`` calls at ``place`` in ``iteration``, as a card or as a guard that has tried everything."""

    def __init__(self) -> None:
        self.clear()

    def clear(self, place: str = "", iteration: int = 0, times: int = 0, after: int = 0, ladder: bool = False) -> None:
        self.place, self.iteration, self.times, self.after, self.ladder = place, iteration, times, after, ladder
        self.hit = 0

    def at(self, place: str) -> None:
        run = watch.running()
        if place != self.place or not self.times:
            return
        if place not in OUTSIDE_JOBS and (run is None or run.batch.iteration not in (self.iteration, None)):
            return
        if self.after:
            self.after -= 1
            return
        self.times -= 1
        self.hit += 1
        if self.ladder:
            raise LadderExhaustedError("The UNet does not fit in 3.0 GiB however small its work is made.", detail="x")
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def plant(patches: PatchSet) -> None:
    for place, (where, name) in PLACES.items():
        module, _, inner = where.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, inner) if inner else owner

        def around(original, args, kwargs, place=place):
            plan.at(place)
            return original(*args, **kwargs)

        patches.wrap(owner, name, around)


watch, session = plugin._current._jobs, plugin._current.session
host = watch._engine
plan, patches, rooms, profiles = Plan(), PatchSet(), [], []
XyzAxes(session).add()  # --nowebui lists the axes before any callback


def start(_blocks, app) -> None:
    plant(patches)
    patches.wrap(host, "make_room", lambda original, args, kwargs: rooms.append(original()) or rooms[-1])

    def job(original, args, kwargs):
        profiles.append(args[1].value)
        return original(*args, **kwargs)

    patches.wrap(host, "job", job)

    @app.post("/watch/plan")
    def order(order: dict) -> dict:
        plan.clear(**order)
        rooms.clear()
        profiles.clear()
        session.log.clear()
        return {}

    @app.get("/watch/state")
    def state() -> dict:
        last = session.last_job()
        return {
            "hit": plan.hit,
            "rooms": rooms,
            "profiles": profiles,
            "records": [record.as_dict() for record in reversed(session.log.records(LogFilter(), limit=50, offset=0))],
            "running": session.progress() is not None,
            "notices": list(last.notices) if last else [],
        }

    @app.post("/watch/person")
    def person(order: dict) -> dict:
        """As a person asks, who sees a gallery and the sentences below it."""
        from modules import call_queue, processing, shared

        with call_queue.queue_lock:
            shared.state.begin(job="watch")
            try:
                p = processing.StableDiffusionProcessingTxt2Img(
                    sd_model=shared.sd_model, outpath_samples=shared.opts.outdir_txt2img_samples, **order
                )
                processed = processing.process_images(p)
            finally:
                shared.state.end()
        return {"images": len(processed.images), "comments": processed.comments, "info": processed.js()}

    @app.post("/watch/folder")
    def folder(order: dict) -> dict:
        """As a person has every picture of a folder redrawn."""
        from modules import call_queue, img2img, processing, shared

        source, target, fields = order["source"], order["target"], order["request"]
        with call_queue.queue_lock:
            shared.state.begin(job="watch")
            try:
                p = processing.StableDiffusionProcessingImg2Img(
                    sd_model=shared.sd_model, outpath_samples=shared.opts.outdir_img2img_samples, **fields
                )
                processed = img2img.process_batch(p, source, target, "", [0])
            finally:
                shared.state.end()
        return {"images": len(processed.images), "infotexts": processed.infotexts, "comments": processed.comments}

    @app.post("/watch/parse")
    def parse(order: dict) -> dict:
        from modules import infotext_utils

        found = infotext_utils.parse_generation_parameters(order["infotext"], [])
        return {"found": found, "overrides": [list(item) for item in infotext_utils.get_override_settings(found)]}

    @app.get("/watch/axes")
    def axes() -> dict:
        (script,) = {id(d.module): d.module for d in scripts.scripts_data if hasattr(d.module, "axis_options")}.values()
        options = [option for option in script.axis_options if not getattr(option, "is_img2img", False)]
        return {"labels": [option.label for option in options]}

    @app.post("/watch/uninstall")
    def uninstall(order: dict) -> dict:
        patches.undo()
        plugin.uninstall()
        return {}


script_callbacks.on_app_started(start)
