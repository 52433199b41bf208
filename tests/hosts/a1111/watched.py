"""A real AUTOMATIC1111 with the extension and the probe in it, for tests that make its memory run out."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from tests.hosts.webui import WebUi, add_script, add_this_extension

ORDER = {
    "prompt": "a red circle above a blue square", "steps": 6, "sampler_name": "Euler a", "seed": 5, "width": 64,
    "height": 64, "n_iter": 3, "save_images": True,
}  # fmt: skip


class Watched:
    """The webui with the probe in it."""

    def __init__(self, host: WebUi) -> None:
        self.host = host

    def plan(self, **plan) -> None:
        self.host.ask("/watch/plan", plan)

    def state(self) -> dict:
        return self.host.ask("/watch/state")

    def make(self, **changes) -> tuple[list[str], dict]:
        """The images, without their metadata, and what the webui says of them."""
        order = {**ORDER, **changes}
        route = "img2img" if "init_images" in order else "txt2img"
        answer = self.host.ask(f"/sdapi/v1/{route}", order)
        info = json.loads(answer["info"])
        pixels = [opened(image).tobytes().hex() for image in answer["images"]]
        return pixels[info["index_of_first_image"] :], info


def opened(image: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB")


def start_picture() -> str:
    stream = io.BytesIO()
    Image.linear_gradient("L").resize((64, 64)).convert("RGB").save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


FROM_PICTURE = {"init_images": [start_picture()], "denoising_strength": 0.6}


def prepare(data: Path, *checkpoints: str) -> None:
    """A data folder with the extension, the probe, a LoRA and the small model under these names."""
    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import embedded_folder
    from sd_webui_spillway.models.folder_config import read_folder_config
    from sd_webui_spillway.models.lora import write_lora
    from tests.small_models import random_lora

    folder = embedded_folder()
    for name in checkpoints:
        convert_folder(folder, data / "models" / "Stable-diffusion" / f"{name}.safetensors")
    config = read_folder_config(folder)
    write_lora(data / "lora", data / "models" / "Lora" / "test.safetensors", random_lora(config, text=True), config)
    add_this_extension(data)
    add_script(data, "zz-watch-probe", Path(__file__).with_name("watch_probe.py"))


@contextmanager
def started(data: Path, checkpoint: str) -> Iterator[Watched]:
    file = data / "models" / "Stable-diffusion" / f"{checkpoint}.safetensors"
    host = WebUi(data, file, "--spillway-dedicated-limit", "256MiB")
    try:
        host.wait()
        yield Watched(host)
    finally:
        host.close()
