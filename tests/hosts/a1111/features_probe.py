"""Runs inside AUTOMATIC1111, as the script of an extension: makes what a test needs of the host's own kinds of file,
hooks the UNet as another extension would, and says what lies on the extension's card."""

from __future__ import annotations

import gc

import gradio
import torch
from modules import devices, script_callbacks, scripts, sd_models, shared
from modules.hypernetworks import hypernetwork

try:
    from sd_webui_spillway.host_port import ImageRequest
    from sd_webui_spillway.hosts.a1111 import plugin
    from sd_webui_spillway.placement.stream import streaming
except ImportError:  # the host without the extension
    plugin = None

CHUNK_BYTES = 2**20
"""The model is so small that all of it would be one chunk."""
rows_seen: list[int] = []


def table():
    return plugin._current._models


class WholeBatch(scripts.Script):
    """Replaces the UNet's forward on the instance while a job runs, as ControlNet does, with a hint for every row of
    the whole batch."""

    def title(self) -> str:
        return "Whole batch"

    def show(self, is_img2img: bool) -> object:
        return scripts.AlwaysVisible

    def ui(self, is_img2img: bool) -> list:
        return [gradio.Checkbox(value=False, label=self.title())]

    def process(self, p, wanted=False, *args) -> None:
        if not wanted:
            return
        unet, rows = shared.sd_model.model.diffusion_model, 2 * p.batch_size
        own = unet.forward
        rows_seen.clear()
        hints = torch.linspace(-0.5, 0.5, rows).reshape(rows, 1, 1, 1)

        def forward(x, *args, **kwargs):
            rows_seen.append(len(x))
            return own(x + hints.to(x), *args, **kwargs)

        unet.forward = forward

    def postprocess(self, p, processed, wanted=False, *args) -> None:
        vars(shared.sd_model.model.diffusion_model).pop("forward", None)


def add_routes(_blocks, app) -> None:
    @app.post("/features/hypernetwork")
    def make_hypernetwork(order: dict) -> dict:
        torch.manual_seed(3)
        hypernetwork.create_hypernetwork(
            order["name"], [order["width"]], True, "1, 2, 1", "linear", order["weights"], False, False
        )
        return {"found": sorted(shared.hypernetworks)}

    @app.get("/features/seen")
    def seen() -> dict:
        return {"rows": rows_seen}

    @app.post("/features/words")
    def words(order: dict) -> dict:
        """Encode a word as the host does when it looks for embeddings, outside every call of a component."""
        vector = shared.sd_model.cond_stage_model.encode_embedding_init_text(order["word"], 1)
        return {"width": vector.shape[1]}

    @app.post("/features/room")
    def room(order: dict) -> dict:
        """Another program leaves the extension so much of the card from now on."""
        table().card._total_bytes = order["bytes"]
        return {}

    @app.post("/features/rows")
    def rows(order: dict) -> dict:
        """The room in which so many rows of a batch are to run at once, and not twice as many, by the extension's own
        counting."""
        models = table()
        attachment, request = models.current(), ImageRequest(width=64, height=64, batch_size=order["batch_size"])
        footprint = attachment.placer._meter.footprint(request)
        (need,) = (need for need in footprint.calls if need.component == "unet")
        activations = need.activation_bytes * order["rows"] * 3 // (4 * order["batch_size"])
        beside = models.card.used_bytes() - attachment.placed.resident_bytes()
        needed = footprint.overhead.needed_bytes(need.weights_bytes[attachment.profile], activations)
        return {"bytes": (beside + needed) * 100 // plugin._current.session.settings.dedicated_percent}

    @app.get("/features/state")
    def state() -> dict:
        gc.collect()
        models = table()
        models.rest()
        attachments = models.attachments
        return {
            "profiles": [str(attachment.profile) for attachment in attachments],
            "current": [attachment.current() for attachment in attachments],
            "used_bytes": models.card.used_bytes(),
            "resident_bytes": sum(attachment.placed.resident_bytes() for attachment in attachments),
            "pinned_bytes": plugin._current.session.ledger.pinned_bytes,
            "lowvram": shared.sd_model.lowvram,
            "previews_beside": shared.parallel_processing_allowed,
            "unets": sum(type(known).__name__ == "UNetModel" for known in gc.get_objects()),
            "loaded": len(sd_models.model_data.loaded_sd_models),
            "fp8": devices.fp8,
        }  # fmt: skip


if plugin is not None:
    streaming.chunk_bytes_for = lambda weights_bytes: CHUNK_BYTES
script_callbacks.on_app_started(add_routes)
