"""The extension in the real AUTOMATIC1111, on a simulated card: under every profile the pictures are those of the host
without it, to the byte, for two kinds of checkpoint and every way to make a picture."""

from __future__ import annotations

import base64
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.hosts.webui import NEEDED, WEBUI, WebUi, add_script, add_this_extension

from .tiny_sdxl import write_yaml

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]
PROFILES = ("dedicated", "medvram", "lowvram", "sequential", "stream", "spill", "auto")
CHECKPOINTS = ("small", "tiny-xl")
PROMPT = "a red circle above a blue square"


def start_picture() -> str:
    stream = io.BytesIO()
    Image.linear_gradient("L").resize((64, 64)).convert("RGB").save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


WAYS = {
    "txt2img": {"n_iter": 2},
    "batch of 2": {"batch_size": 2},
    "hires": {"enable_hr": True, "hr_scale": 2, "denoising_strength": 0.6, "hr_upscaler": "Latent"},
    "img2img": {"init_images": [start_picture()], "denoising_strength": 0.6},
    "LoRA": {"prompt": f"{PROMPT} <lora:test:1>"},
    "no LoRA after it": {},
}


def made(host: WebUi, checkpoint: str, way: str) -> list[np.ndarray]:
    changes = WAYS[way]
    route = "/sdapi/v1/img2img" if "init_images" in changes else "/sdapi/v1/txt2img"
    override = {"override_settings": {"sd_model_checkpoint": checkpoint},
                "override_settings_restore_afterwards": False, "return_grid": False}  # fmt: skip
    return host.pictures(**{"prompt": PROMPT, "route": route, **changes, **override})


def all_made(host: WebUi) -> dict[tuple[str, str], list[np.ndarray]]:
    return {(checkpoint, way): made(host, checkpoint, way) for checkpoint in CHECKPOINTS for way in WAYS}


@pytest.fixture(scope="module")
def plain_data(tmp_path_factory) -> Path:
    """A host's data folder without the extension: the checkpoints and a LoRA for the first."""
    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import embedded_folder
    from sd_webui_spillway.models.folder_config import read_folder_config
    from sd_webui_spillway.models.lora import write_lora
    from tests.small_models import random_lora

    data, folder = tmp_path_factory.mktemp("plain"), embedded_folder()
    models = data / "models" / "Stable-diffusion"
    convert_folder(folder, models / "small.safetensors")
    write_yaml(models / "tiny-xl.yaml", models / "small-clip")
    config = read_folder_config(folder)
    write_lora(data / "lora", data / "models" / "Lora" / "test.safetensors", random_lora(config, text=True), config)
    dress(data)
    return data


def dress(data: Path) -> None:
    """Without live previews: the host would fetch the model that approximates SDXL's."""
    add_script(data, "probe", Path(__file__).with_name("sdxl_probe.py"))
    (data / "config.json").write_text(json.dumps({"live_previews_enable": False}))


@pytest.fixture(scope="module")
def wanted(plain_data) -> dict[tuple[str, str], list[np.ndarray]]:
    """What the host draws by itself, where it repeats itself."""
    models = plain_data / "models" / "Stable-diffusion"
    host = WebUi(plain_data, models / "small.safetensors", page=True)
    try:
        host.wait()
        order = {"yaml": str(models / "tiny-xl.yaml"), "checkpoint": str(models / "tiny-xl.safetensors")}
        assert host.ask("/make-sdxl", order)["tensors"] > 100
        host.ask("/sdapi/v1/refresh-checkpoints", {})
        first, second = all_made(host), all_made(host)
    finally:
        host.close()
    for case, pictures in first.items():
        assert all(picture.std() > 1 for picture in pictures), case
        assert same(pictures, second[case]), f"the host itself does not repeat {case}"
    return first


@pytest.fixture(scope="module")
def host(plain_data, wanted, tmp_path_factory):
    data = tmp_path_factory.mktemp("extended")
    shutil.copytree(plain_data / "models", data / "models", dirs_exist_ok=True)
    dress(data)
    add_this_extension(data)
    checkpoint = data / "models" / "Stable-diffusion" / "small.safetensors"
    host = WebUi(data, checkpoint, "--spillway-dedicated-limit", "400MiB", page=True)
    try:
        host.wait()
        yield host
    finally:
        host.close()


@pytest.mark.parametrize("profile", PROFILES)
def test_every_picture_is_the_hosts_own(host, wanted, profile):
    rows = {row["profile"]: row for row in host.ask("/spillway/v1/profile")["rows"]}
    if rows[profile]["unavailable_because"]:
        pytest.skip(f"{profile} needs what this version lacks: {rows[profile]['unavailable_because']}")
    host.ask("/spillway/v1/profile", {"profile": profile}, "PUT")
    for case, pictures in all_made(host).items():
        assert same(pictures, wanted[case]), case
    used = {row["profile_used"] for row in host.ask("/spillway/v1/images?limit=12")["images"]}
    assert used == {profile} or profile == "auto", used
    assert "Traceback" not in host.log.read_text(errors="replace")


def same(ones: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return len(ones) == len(others) and all(np.array_equal(a, b) for a, b in zip(ones, others, strict=True))
