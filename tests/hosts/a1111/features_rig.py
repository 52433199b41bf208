"""A host's data folder with every kind of file that changes a picture, and the host over it, extended or not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.hosts.webui import WebUi, add_script, add_this_extension

PROMPT = "a red circle above a blue square"
AMPLE, TIGHT = "400MiB", "17MiB"
"""Room for everything, and no room for the whole UNet beside what a call takes."""
Pictures = list[np.ndarray]


def make_models(data: Path) -> None:
    """Two checkpoints and a VAE that draw differently, and an embedding; the host makes the hypernetwork itself."""
    from safetensors.torch import load_file, save_file

    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import embedded_folder

    checkpoints = data / "models" / "Stable-diffusion"
    small, other = checkpoints / "small.safetensors", checkpoints / "other.safetensors"
    for checkpoint in (small, other):
        convert_folder(embedded_folder(), checkpoint)
    weights, generator = load_file(small), torch.Generator().manual_seed(3)

    def changed(prefix: str) -> dict[str, torch.Tensor]:
        chosen = {name: weight for name, weight in weights.items() if name.startswith(prefix)}
        return {
            name: weight + 0.2 * weight.float().std(correction=0) * torch.randn(weight.shape, generator=generator)
            for name, weight in chosen.items()
        }

    save_file({**weights, **changed("model.diffusion_model.")}, other)
    vae = {name.removeprefix("first_stage_model."): weight for name, weight in changed("first_stage_model.").items()}
    for folder, name, made in (("models/VAE", "other-vae", vae), ("embeddings", "scrawl", {"emb": embedding(weights)})):
        (data / folder).mkdir(parents=True, exist_ok=True)
        save_file(made, data / folder / f"{name}.safetensors")


def embedding(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Two tokens' worth of vectors as wide as the text encoder's."""
    (table,) = [weight for name, weight in weights.items() if name.endswith("token_embedding.weight")]
    return 3 * table[:2].flip(1).float().contiguous()


def dress(data: Path, *, extended: bool) -> None:
    """The probe, after the extension in the host's order; previews off but where a test has them on."""
    add_script(data, "zz-features-probe", Path(__file__).with_name("features_probe.py"))
    quiet = {"live_previews_enable": False, "live_preview_allow_lowvram_full": True, "show_progress_every_n_steps": 1}
    (data / "config.json").write_text(json.dumps(quiet))
    if extended:
        add_this_extension(data)


def copied(models: Path, data: Path) -> Path:
    """A second data folder with the first one's files."""
    for folder in ("models", "embeddings"):
        shutil.copytree(models / folder, data / folder, dirs_exist_ok=True)
    return data


def begin(data: Path, *flags: str) -> WebUi:
    host = WebUi(data, data / "models" / "Stable-diffusion" / "small.safetensors", *flags, page=True)
    try:
        host.wait()
    except BaseException:
        host.close()
        raise
    return host


def same(ones: Pictures, others: Pictures) -> bool:
    return len(ones) == len(others) and all(np.array_equal(a, b) for a, b in zip(ones, others, strict=True))


def options(host: WebUi, **values: Any) -> None:
    """As a person sets them on the host's Settings page."""
    host.ask("/sdapi/v1/options", values)


def place(host: WebUi, profile: str) -> None:
    host.ask("/spillway/v1/profile", {"profile": profile}, "PUT")


def state(host: WebUi) -> dict[str, Any]:
    return host.ask("/features/state")
