"""A host that is stopped, switched off, or given pictures of other shapes."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from sd_webui_spillway.errors import BadInputError, UnavailableError
from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from tests.hosts.rig import Watcher, pixels, same

REQUEST = ImageRequest("a red circle", width=64, height=64, steps=3, seed=5, batch_count=3)


def test_stopping_in_the_middle_keeps_what_is_finished(roomy):
    rig = roomy("sd1")
    rig.host.switch(Profile.LOWVRAM)
    wanted = rig.pictures(REQUEST, Profile.LOWVRAM)
    watcher = Watcher(stop_when=lambda watcher: len(watcher.steps) >= 5)  # the second step of the second image
    result = rig.make(REQUEST, Profile.LOWVRAM, watcher)
    assert result.interrupted
    assert same(pixels(result), wanted[:1])
    assert result.given_up == ()
    assert len(watcher.steps) == 5
    assert rig.placement is Profile.LOWVRAM
    assert same(rig.pictures(REQUEST, Profile.LOWVRAM), wanted)


def test_stopping_after_the_last_image_interrupts_nothing(roomy):
    result = roomy("sd1").make(REQUEST, Profile.MEDVRAM, Watcher(stop_when=lambda watcher: len(watcher.records) == 3))
    assert len(result.images) == 3
    assert not result.interrupted


def test_the_observer_sees_every_stage_and_step(roomy):
    watcher = Watcher()
    roomy("sd1").make(REQUEST, Profile.MEDVRAM, watcher)
    assert watcher.stages == ["encode", "sample", "decode", "save"] * 3
    assert watcher.steps == [(1, 3), (2, 3), (3, 3)] * 3
    assert watcher.batches == [0, 1, 2]
    assert watcher.profiles == [Profile.MEDVRAM]


@pytest.mark.parametrize("profile", [Profile.DEDICATED, Profile.SEQUENTIAL])
def test_closed_the_pipeline_is_as_it_was(rig_of, start_picture, profile):
    rig = rig_of("sd1")
    pipeline = rig.model.pipeline
    rig.host.close()  # made and closed once, so that what is compared with is a plain pipeline
    scheduler, plain_class, before = pipeline.scheduler, type(pipeline), draw(pipeline)
    weights = {name: tensor.clone() for name, tensor in pipeline.unet.state_dict().items()}
    second = rig_of("sd1")
    assert type(pipeline) is not plain_class
    second.host.switch(profile)
    second.make(ImageRequest("x", width=64, height=64, steps=2, sampler="euler a", init_image=start_picture), profile)
    second.make(ImageRequest("x", width=64, height=64, steps=1, sampler="dpm++ 2m"), profile)
    second.host.close()
    second.host.close()
    assert type(pipeline) is plain_class
    assert pipeline.scheduler is scheduler
    assert second.card.used_bytes() <= 64
    assert all("forward" not in vars(module) for module in (pipeline.unet, pipeline.text_encoder))
    assert not any(name in vars(pipeline.vae) for name in ("encode", "decode"))
    assert not any(module._forward_pre_hooks for module in pipeline.unet.modules())
    assert all(torch.equal(tensor, weights[name]) for name, tensor in pipeline.unet.state_dict().items())
    assert torch.equal(draw(pipeline), before)


def draw(pipeline) -> torch.Tensor:
    return pipeline(
        "a cat", num_inference_steps=2, width=64, height=64, output_type="pt",
        generator=torch.Generator().manual_seed(3),
    ).images  # fmt: skip


def test_the_start_picture_is_resized_to_what_was_asked_for(roomy, start_picture, tmp_path):
    rig = roomy("sd1")
    request = ImageRequest("a", width=96, height=64, steps=4, seed=5, init_image=start_picture, strength=0.25)
    (picture,) = rig.pictures(request, Profile.MEDVRAM)
    assert picture.shape == (64, 96, 3)
    with Image.open(start_picture) as image:
        image.resize((96, 64), Image.Resampling.LANCZOS).save(tmp_path / "resized.png")
    resized = ImageRequest(**{**vars(request), "init_image": tmp_path / "resized.png"})
    assert same(rig.pictures(resized, Profile.MEDVRAM), [picture])
    other = ImageRequest(**{**vars(request), "strength": 1.0})
    assert not same(rig.pictures(other, Profile.MEDVRAM), [picture])


def test_a_start_picture_that_is_none_is_said_in_one_sentence(roomy, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nand then nothing")
    text = tmp_path / "notes.png"
    text.write_text("not a picture")
    for path in (broken, text):
        with pytest.raises(BadInputError, match=path.name) as caught:
            roomy("sd1").make(ImageRequest(width=64, height=64, steps=2, init_image=path), Profile.MEDVRAM)
        assert "\n" not in str(caught.value)
        assert "picture" in str(caught.value)


def test_profiles_that_are_not_to_be_had_are_refused(roomy):
    rig = roomy("sd1")
    rig.host.switch(Profile.MEDVRAM)
    for profile, why in ((Profile.STREAM, "it needs a CUDA card"), (Profile.SPILL, "it needs a CUDA card")):
        with pytest.raises(UnavailableError, match=why):
            rig.host.switch(profile)
    assert rig.placement is Profile.MEDVRAM


def test_the_host_says_that_its_card_is_simulated(roomy):
    info = roomy("sd1").host.info()
    assert info.simulated
    assert "simulated card of 64.0 GiB" in info.device_name
    assert any("There is no GPU here" in notice for notice in info.notices)
    reading = roomy("sd1").host.memory_providers()[0].read()
    assert reading.values["simulated"] is True
    assert reading.values["dedicated_total_bytes"] == 64 * 2**30
