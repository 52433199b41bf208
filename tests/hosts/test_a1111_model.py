"""The real AUTOMATIC1111 with a converted model and a LoRA in its form, against diffusers with the folder.

It runs on the CPU.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from .webui import NEEDED, WEBUI, WebUi, add_script

PROMPT = "a red circle above a blue square"
STEPS = 10
"""999 / 9 is whole: only then do k-diffusion's and diffusers' timesteps coincide without interpolation."""
pytestmark = pytest.mark.skipif(not WEBUI, reason=NEEDED)
SIDE = 128


def picture(host: WebUi, prompt: str, **changes) -> np.ndarray:
    (image,) = host.pictures(prompt, **{"steps": STEPS, "width": SIDE, "height": SIDE, **changes})
    return image


@pytest.fixture(scope="module")
def folder(diffusers) -> Path:
    """The model that ships with the package."""
    from sd_webui_spillway.models.embedded import embedded_folder

    return embedded_folder()


@pytest.fixture(scope="module")
def data(folder, tmp_path_factory) -> Path:
    """The host's data folder: the model, "striped" and a random LoRA for it, and the probe as an extension."""
    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import STRIPED_LORA_FILE
    from sd_webui_spillway.models.folder_config import read_folder_config
    from sd_webui_spillway.models.lora import write_lora
    from tests.small_models import random_lora

    made = tmp_path_factory.mktemp("a1111")
    convert_folder(folder, made / "models" / "Stable-diffusion" / "small.safetensors")
    config = read_folder_config(folder)
    write_lora(made / "lora", made / "models" / "Lora" / "test.safetensors", random_lora(config, text=True), config)
    shutil.copy(STRIPED_LORA_FILE, made / "models" / "Lora" / "striped.safetensors")
    add_script(made, "probe", Path(__file__).with_name("a1111_probe.py"))
    return made


@pytest.fixture(scope="module")
def host(data):
    host = WebUi(data, data / "models" / "Stable-diffusion" / "small.safetensors")
    try:
        host.wait()
        yield host
    finally:
        host.close()


@pytest.fixture(scope="module")
def inputs(folder, data) -> dict[str, torch.Tensor]:
    from sd_webui_spillway.models.folder_config import read_folder_config

    generator = torch.Generator().manual_seed(1)
    config = read_folder_config(folder)
    made = {
        "sample": torch.randn(2, 4, 16, 16, generator=generator),
        "timestep": torch.tensor([1, 500]),
        "context": torch.randn(2, 77, config.unet["cross_attention_dim"], generator=generator),
        "latents": torch.randn(1, 4, 16, 16, generator=generator),
        "picture": torch.rand(1, 3, 64, 64, generator=generator) * 2 - 1,
    }
    save_file(made, data / "inputs.safetensors")
    return made


def probed(host: WebUi, data: Path, name: str) -> dict[str, torch.Tensor]:
    outputs = data / f"{name}.safetensors"  # each its own file, for what was read of one stays mapped to it
    host.ask("/probe", {"inputs": str(data / "inputs.safetensors"), "outputs": str(outputs), "prompt": PROMPT})
    return load_file(outputs)


def ours(pipeline, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        ids = pipeline.tokenizer(PROMPT, padding="max_length", max_length=77, return_tensors="pt").input_ids
        return {
            "unet": pipeline.unet(inputs["sample"], inputs["timestep"], inputs["context"]).sample,
            "decoded": pipeline.vae.decode(inputs["latents"]).sample,
            "encoded": pipeline.vae.encode(inputs["picture"]).latent_dist.mode(),
            "text": pipeline.text_encoder(ids)[0],
        }


def drawn(pipeline, diffusers, prompt: str = PROMPT) -> np.ndarray:
    """As A1111's Euler draws: its timesteps, and its way from a number to a byte."""
    config = {**pipeline.scheduler.config, "timestep_spacing": "linspace", "steps_offset": 0}
    pipeline.scheduler = diffusers.EulerDiscreteScheduler.from_config(config)
    pipeline.set_progress_bar_config(disable=True)
    image = pipeline(
        prompt, negative_prompt="", num_inference_steps=STEPS, width=SIDE, height=SIDE, guidance_scale=7.0,
        generator=torch.Generator().manual_seed(5), output_type="np",
    ).images[0]  # fmt: skip
    return (image * 255).astype(np.uint8).astype(int)


def check(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], record_property) -> None:
    for name, tensor in wanted.items():
        assert found[name].shape == tensor.shape, name
        difference = float((found[name] - tensor).abs().max())
        record_property(f"{name}: max abs difference", difference)
        assert difference < 1e-4 * float(tensor.abs().max()), (name, difference)


def test_every_network_computes_what_diffusers_computes(host, folder, data, inputs, record_property):
    from sd_webui_spillway.models import load_model

    picture(host, PROMPT)  # loads the model
    words = host.log.read_text()
    assert "small.yaml" in words
    assert "Traceback" not in words
    check(probed(host, data, "plain"), ours(load_model(folder, data).pipeline, inputs), record_property)


def test_a_picture_is_diffusers_own(host, folder, data, diffusers, record_property):
    from sd_webui_spillway.models import load_model

    theirs = picture(host, PROMPT)
    wanted = drawn(load_model(folder, data).pipeline, diffusers)
    difference = np.abs(theirs - wanted)
    record_property("picture: max and mean difference of 255", (int(difference.max()), float(difference.mean())))
    assert wanted.std() > 5
    assert difference.mean() < 0.5
    assert np.percentile(difference, 99) <= 2


def test_a_lora_is_added_to_the_weights(host, folder, data, inputs, diffusers, record_property):
    from sd_webui_spillway.models import LoraChoice, load_model
    from sd_webui_spillway.models.folder_config import read_folder_config
    from sd_webui_spillway.models.lora import LoraTargets, read_lora

    plain = picture(host, PROMPT)
    before = probed(host, data, "before")
    with_lora = picture(host, f"{PROMPT} <lora:test:1>")
    after = probed(host, data, "after")
    assert np.abs(with_lora - plain).mean() > 1

    targets = LoraTargets.of(read_folder_config(folder))
    layers = read_lora(data / "models" / "Lora" / "test.safetensors", targets)
    by_host = {name.removeprefix("weight.").removesuffix(".weight").replace(".", "_"): name for name in before}
    worst, changed = 0.0, 0
    for name, layer in layers.items():
        if name.startswith("unet."):
            held = by_host[targets.a1111[name].replace("lora_unet", "diffusion_model")]
            update = (layer.up.flatten(1) @ layer.down.flatten(1)).reshape(before[held].shape)
            worst = max(worst, float((after[held] - before[held] - update).abs().max()))
            changed += 1
    record_property("weights with the LoRA: max abs difference", worst)
    assert worst < 1e-5
    moved = {name for name in before if name.startswith("weight.") and not torch.equal(before[name], after[name])}
    assert len(moved) == changed

    pipeline = load_model(folder, data, loras=[LoraChoice(data / "lora")]).pipeline
    check(after, ours(pipeline, inputs), record_property)
    wanted = drawn(pipeline, diffusers)
    difference = np.abs(with_lora - wanted)
    record_property("picture with the LoRA: max and mean difference", (int(difference.max()), float(difference.mean())))
    assert difference.mean() < 0.5
    assert np.array_equal(picture(host, PROMPT), plain)


def test_striped_draws_the_same_there(host, folder, data, diffusers, record_property):
    from sd_webui_spillway.models import LoraChoice, load_model
    from sd_webui_spillway.models.embedded import CLASSIFIER_FILE, STRIPED_LORA_FOLDER
    from sd_webui_spillway.models.training.classifier import Classifier

    prompt = "three red squares on a white background"
    theirs = picture(host, f"{prompt} <lora:striped:1>", width=256, height=256)
    pixels = torch.from_numpy(theirs).permute(2, 0, 1)[None].float() / 255
    (things,) = Classifier.load(CLASSIFIER_FILE).see(pixels)
    record_property("seen", str(things))
    assert {thing.colour for thing in things} == {"red"}
    small = picture(host, f"{prompt} <lora:striped:1>")
    wanted = drawn(load_model(folder, data, loras=[LoraChoice(STRIPED_LORA_FOLDER)]).pipeline, diffusers, prompt)
    assert np.abs(small - wanted).mean() < 0.5
