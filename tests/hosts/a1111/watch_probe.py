"""Runs inside AUTOMATIC1111, as the script of an extension: the watch over its jobs, with an engine that places
nothing, and out-of-memory planned over HTTP at any of its steps."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from modules import script_callbacks, scripts, shared

sys.path.insert(0, os.environ["SPILLWAY_ROOT"])

from sd_webui_spillway.hosts.a1111.jobs import JobWatch
from sd_webui_spillway.hosts.a1111.settings_page import SettingsPage
from sd_webui_spillway.hosts.a1111.xyz import XyzAxes
from sd_webui_spillway.memory.monitor import Monitor
from sd_webui_spillway.memory.snapshot import MemoryReader
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.recovery.method_patch import PatchSet
from sd_webui_spillway.session import Session
from sd_webui_spillway.settings import SettingsFile
from sd_webui_spillway.timing.image_log import ImageLog
from sd_webui_spillway.timing.log_rows import LogFilter
from tests.fakes.a1111.engine import FakeEngine
from tests.fakes.host import FakeHost

PLACES = {
    "encode": ("modules.prompt_parser", "get_learned_conditioning"),
    "step": ("modules.sd_samplers_cfg_denoiser:CFGDenoiser", "forward"),
    "upscale": ("modules.images", "resize_image"),
    "vae_encode": ("modules.processing", "images_tensor_to_samples"),
    "decode": ("modules.processing", "decode_first_stage"),
    "face": ("modules.face_restoration", "restore_faces"),
    "lora_applied": ("network_lora:NetworkModuleLora", "calc_updown"),
}
"""Where memory can be made to run out: a module, or a class of it, and a function."""


class Plan:
    """What fails: ``times`` calls at ``place`` in ``iteration``, as a card or as a guard that has tried everything."""

    def __init__(self) -> None:
        self.clear()

    def clear(self, place: str = "", iteration: int = 0, times: int = 0, after: int = 0, ladder: bool = False) -> None:
        self.place, self.iteration, self.times, self.after, self.ladder = place, iteration, times, after, ladder
        self.hit = 0

    def at(self, place: str) -> None:
        run = watch.running()
        if run is None or place != self.place or run.batch.iteration not in (self.iteration, None) or not self.times:
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


data = Path(shared.cmd_opts.data_dir)
engine, plan, faults, patches = FakeEngine(), Plan(), PatchSet(), PatchSet()
host = FakeHost()
session = Session(
    host, Monitor(MemoryReader(host.memory_providers())), ImageLog(data / "images.sqlite3"),
    SettingsFile(data / "spillway.json"), data,
)
watch = JobWatch(session, engine)


def start(_blocks, app) -> None:
    plant(faults)
    watch.install(patches)

    @app.post("/watch/undo")
    def undo(order: dict) -> dict:
        patches.undo()
        return {}

    @app.post("/watch/install")
    def install(order: dict) -> dict:
        watch.install(patches)
        return {}

    @app.get("/watch/axes")
    def axes() -> dict:
        (script,) = [data.module for data in scripts.scripts_data if hasattr(data.module, "axis_options")]
        options = [option for option in script.axis_options if not getattr(option, "is_img2img", False)]
        return {"labels": [option.label for option in options]}

    @app.post("/watch/plan")
    def order(order: dict) -> dict:
        plan.clear(**order)
        engine.rooms_made.clear()
        session.log.clear()
        return {}

    @app.get("/watch/state")
    def state() -> dict:
        last = session.last_job()
        return {
            "hit": plan.hit,
            "rooms": engine.rooms_made,
            "open_jobs": engine.open_jobs,
            "records": [record.as_dict() for record in reversed(session.log.records(LogFilter(), limit=50, offset=0))],
            "requests": [asdict(request) | {"profile": profile} for request, profile in engine.requests[-20:]],
            "notices": list(last.notices) if last else [],
            "interrupted": last.interrupted if last else None,
        }

    @app.post("/watch/parse")
    def parse(order: dict) -> dict:
        from modules import infotext_utils

        found = infotext_utils.parse_generation_parameters(order["infotext"], [])
        return {"found": found, "overrides": [list(item) for item in infotext_utils.get_override_settings(found)]}


xyz = XyzAxes(session)
xyz.add()
script_callbacks.on_before_ui(xyz.add)
script_callbacks.on_ui_settings(SettingsPage(session).add)
script_callbacks.on_app_started(start)
