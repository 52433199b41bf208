"""A LoRA in the model: the same picture to the byte in every profile, and after every switch."""

from __future__ import annotations

import itertools

import pytest

from sd_webui_spillway.placement import Profile
from tests.hosts.rig import PLACEMENTS, Rig, same
from tests.hosts.test_same_image import request_for


@pytest.fixture(scope="module", params=["sd1", "sdxl"])
def rigs(request, diffusers, tmp_path_factory):
    """The same random model twice: plain, and with a LoRA in its UNet and text encoders."""
    pytest.importorskip("peft", reason="needs peft")
    import torch

    from sd_webui_spillway.models import LoadedModel, LoraChoice
    from sd_webui_spillway.models.families import published
    from sd_webui_spillway.models.lora import write_lora
    from sd_webui_spillway.models.lora_loading import add_loras
    from sd_webui_spillway.models.maker import build_pipeline
    from tests.small_models import random_lora

    family, folder = request.param, tmp_path_factory.mktemp("lora")
    config = published(family, "tiny")
    write_lora(folder / "diffusers", folder / "lora.safetensors", random_lora(config, text=True), config)
    made = []
    for loras in ((), (LoraChoice(folder / "lora.safetensors", 0.8),)):
        pipeline = build_pipeline(family, "tiny", 3, torch.float32, folder)
        add_loras(pipeline, loras)
        made.append(Rig(LoadedModel(pipeline, f"tiny {family}", family, (64, 64)), folder / f"outputs{len(loras)}"))
    yield made
    for rig in made:
        rig.host.close()


def test_every_profile_makes_the_same_picture(rigs):
    plain, rig = rigs
    wanted = rig.pictures(request_for(), Profile.DEDICATED)
    assert wanted[0].std() > 5
    assert not same(wanted, plain.pictures(request_for(), Profile.DEDICATED), within=10)
    for profile in PLACEMENTS[1:]:
        assert same(rig.pictures(request_for(), profile), wanted), profile


def test_switching_keeps_it(rigs):
    rig = rigs[1]
    request = request_for(width=64, steps=1)
    wanted = rig.pictures(request, Profile.DEDICATED)
    for before, after in itertools.pairwise([*PLACEMENTS, *PLACEMENTS[::-1]]):
        rig.host.switch(before)
        assert same(rig.pictures(request, after), wanted), (before, after)
