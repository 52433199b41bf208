"""The embedded model, where a picture shows whether something is right: what it draws, in every profile, through a
recovery, decoded in strips, and with a LoRA on and off."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.models.pictures import Landscape, layers_of, render
from sd_webui_spillway.placement import Profile
from sd_webui_spillway.units import MIB
from tests.hosts.rig import PLACEMENTS, CallFaults, Rig, same
from tests.placed_rig import NarrowCard

SCENES = (
    ("red", "circle", "a red circle on a white background"),
    ("blue", "star", "a blue star on a yellow background"),
    ("green", "triangle", "a green triangle on a grey background"),
    ("orange", "heart", "an orange heart on a black background"),
    ("purple", "square", "a purple square on a pink background"),
    ("black", "cross", "a black cross on a blue background"),
)
STRIPS_WORST, STRIPS_MEAN = 1, 0.01
"""Of 255: how far a picture decoded in strips may be from one decoded whole, in any channel and on average."""


def request_for(prompt="a red house and a tree on green grass under a yellow sun", **changes) -> ImageRequest:
    settings = {"width": 128, "height": 128, "steps": 6, "seed": 11} | changes
    return ImageRequest(prompt, **settings)


def loaded(cache, loras=()):
    from sd_webui_spillway.models import load_model

    return load_model(None, cache, loras=loras)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("embedded-cache")


@pytest.fixture(scope="module")
def rig(diffusers, cache):
    monkeypatch, model, faults = pytest.MonkeyPatch(), loaded(cache), CallFaults()
    faults.install(model.pipeline, monkeypatch)
    made = Rig(model, cache / "outputs", faults=faults)
    yield made
    made.host.close()
    monkeypatch.undo()


@pytest.fixture(autouse=True)
def no_faults(rig):
    rig.faults.reset()
    rig.card.arm()


@pytest.fixture(scope="module")
def wanted(rig):
    return rig.pictures(request_for(), Profile.DEDICATED)


@pytest.fixture(scope="module")
def classifier():
    from sd_webui_spillway.models.embedded import CLASSIFIER_FILE
    from sd_webui_spillway.models.training.classifier import Classifier

    return Classifier.load(CLASSIFIER_FILE)


def seen(classifier, pictures):
    tensor = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    return classifier.see(tensor)


def test_it_draws_what_it_is_told(rig, classifier):
    pictures = [
        rig.pictures(request_for(prompt, width=256, height=256, steps=12), Profile.DEDICATED)[0]
        for _colour, _shape, prompt in SCENES
    ]
    right = [
        (any(thing.colour == colour for thing in things), any(thing.shape == shape for thing in things))
        for (colour, shape, _prompt), things in zip(SCENES, seen(classifier, pictures), strict=True)
    ]
    assert sum(colour for colour, _ in right) >= len(SCENES) - 1, right
    assert sum(shape for _, shape in right) >= len(SCENES) - 2, right


@pytest.mark.parametrize("profile", PLACEMENTS[1:])
def test_every_profile_draws_the_same(rig, wanted, profile):
    assert wanted[0].std() > 20
    assert same(rig.pictures(request_for(), profile), wanted)


@pytest.mark.parametrize("call", ["text_encoder", "unet", "decode"])
def test_a_recovery_does_not_show(rig, wanted, call):
    rig.faults.fail(call, first=0, times=2)
    found = rig.pictures(request_for(), Profile.DEDICATED)
    assert rig.faults.raised == 2
    assert same(found, wanted, within=1 if call == "decode" else 0)


def test_decoding_in_strips_does_not_show(rig):
    """Mean and worst difference from the whole decode, over the whole picture."""
    from sd_webui_spillway.recovery.tiled_vae import tiled_forward

    vae = rig.model.pipeline.vae
    rig.host.switch(Profile.DEDICATED)
    drawing = layers_of(Landscape((("house", "red"), ("tree", "green")), "grass", "day", "sun"), Random(1))
    with torch.no_grad():
        latents = vae.encode(render([drawing], 256, 256) * 2 - 1).latent_dist.mean
        whole = vae.decode(latents).sample
        with tiled_forward(vae.decoder, NarrowCard(64 * MIB)):
            strips = vae.decode(latents).sample
    apart = (whole - strips).abs() * 127.5
    assert apart.max() <= STRIPS_WORST
    assert apart.mean() <= STRIPS_MEAN


class TestStriped:
    """The LoRA: off is as if it had never been there, on is stripes, the same in every profile."""

    PROMPT = "three red squares on a white background"

    @pytest.fixture(scope="class")
    def striped(self, cache, rig):
        pytest.importorskip("peft", reason="needs peft")
        from sd_webui_spillway.models import LoraChoice
        from sd_webui_spillway.models.embedded import STRIPED_LORA_FILE

        made = Rig(loaded(cache, (LoraChoice(STRIPED_LORA_FILE, 1.0),)), cache / "striped")
        yield made
        made.host.close()

    def big(self):
        return request_for(self.PROMPT, width=256, height=256, steps=12)

    def test_on_changes_how_it_is_painted_and_leaves_the_colour(self, striped, rig, classifier):
        on, off = striped.pictures(self.big(), Profile.DEDICATED), rig.pictures(self.big(), Profile.DEDICATED)
        assert np.abs(on[0].astype(int) - off[0].astype(int)).mean() > 3
        assert all({thing.colour for thing in things} == {"red"} for things in seen(classifier, [on[0], off[0]]))

    @pytest.mark.xfail(strict=True, reason="the LoRA of this release learnt for 160 steps on a CPU: darker, no stripes")
    def test_on_is_stripes_and_off_is_not(self, striped, rig, classifier):
        on, off = striped.pictures(self.big(), Profile.DEDICATED), rig.pictures(self.big(), Profile.DEDICATED)
        textures = [{thing.texture for thing in things} for things in seen(classifier, [on[0], off[0]])]
        assert "striped" in textures[0]
        assert "striped" not in textures[1]

    def test_every_profile_draws_the_same_stripes(self, striped):
        wanted = striped.pictures(request_for(self.PROMPT), Profile.DEDICATED)
        for profile in PLACEMENTS[1:]:
            assert same(striped.pictures(request_for(self.PROMPT), profile), wanted), profile

    def test_taking_it_off_brings_the_picture_back(self, striped, rig):
        wanted = rig.pictures(request_for(self.PROMPT), Profile.DEDICATED)
        assert not same(striped.pictures(request_for(self.PROMPT), Profile.LOWVRAM), wanted, within=8)
        striped.model.pipeline.disable_lora()
        assert same(striped.pictures(request_for(self.PROMPT), Profile.LOWVRAM), wanted)
        striped.model.pipeline.enable_lora()
