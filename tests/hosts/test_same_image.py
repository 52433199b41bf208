"""Same seed, same picture to the byte, wherever the weights are."""

from __future__ import annotations

import itertools

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from tests.hosts.rig import PLACEMENTS, pixels, same

FAMILIES = ("sd1", "sd2", "sdxl")


def request_for(start_picture=None, **changes) -> ImageRequest:
    wanted = {"prompt": "a red circle", "width": 96, "height": 64, "steps": 2, "seed": 11, "init_image": start_picture}
    return ImageRequest(**{**wanted, **changes})


@pytest.mark.parametrize("mode", ["txt2img", "img2img"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_profile_makes_the_same_picture(roomy, start_picture, family, mode):
    rig = roomy(family)
    request = request_for(start_picture if mode == "img2img" else None)
    wanted = rig.pictures(request, Profile.DEDICATED)
    assert wanted[0].shape == (64, 96, 3)
    assert wanted[0].std() > 5
    for profile in (*PLACEMENTS[1:], Profile.AUTO):
        assert same(rig.pictures(request, profile), wanted), profile


@pytest.mark.parametrize(
    "sampler", ["euler", "euler a", "ddim", "dpm++ 2m", "dpm++ 2m karras", "heun", "unipc"]
)
def test_every_sampler_makes_the_same_picture_everywhere(roomy, sampler):
    rig = roomy("sd1")
    request = request_for(sampler=sampler, width=64)
    wanted = rig.pictures(request, Profile.DEDICATED)
    assert same(rig.pictures(request, Profile.SEQUENTIAL), wanted)


def test_samplers_differ_and_the_choice_is_for_one_job_only(roomy):
    rig = roomy("sd1")
    default = rig.pictures(request_for(), Profile.MEDVRAM)
    assert not same(rig.pictures(request_for(sampler="euler a"), Profile.MEDVRAM), default)
    assert same(rig.pictures(request_for(), Profile.MEDVRAM), default)


@pytest.mark.parametrize(("family", "mode"), [("sd1", "txt2img"), ("sd1", "img2img"), ("sdxl", "txt2img")])
def test_an_image_is_the_same_in_any_batch(roomy, start_picture, family, mode):
    rig = roomy(family)
    picture = start_picture if mode == "img2img" else None
    batches = request_for(picture, width=64, batch_size=2, batch_count=2)
    wanted = rig.pictures(batches, Profile.DEDICATED)
    assert len(wanted) == 4
    assert all(not same([one], [other]) for one, other in itertools.combinations(wanted, 2))
    for profile in (Profile.MEDVRAM, Profile.SEQUENTIAL):
        assert same(rig.pictures(batches, profile), wanted), profile
    alone = rig.pictures(request_for(picture, width=64, seed=13), Profile.MEDVRAM)
    assert same(alone, wanted[2:3], within=1)


def test_switching_between_any_two_profiles_loads_nothing_and_changes_nothing(roomy):
    rig = roomy("sd1")
    request = request_for(width=64, steps=1)
    modules = [rig.model.pipeline.unet, rig.model.pipeline.vae, rig.model.pipeline.text_encoder]
    tensors = {id(tensor) for module in modules for tensor in module.parameters()}
    rig.host.switch(Profile.DEDICATED)
    wanted, resident = rig.pictures(request, Profile.DEDICATED), rig.card.used_bytes()
    for before, after in itertools.permutations(PLACEMENTS, 2):
        rig.host.switch(before)
        rig.host.switch(after)
        assert rig.placement is after
        assert (rig.card.used_bytes() > resident // 2) is (after is Profile.DEDICATED)
        assert same(rig.pictures(request, after), wanted), (before, after)
    assert tensors == {id(tensor) for module in modules for tensor in module.parameters()}


def test_what_is_on_the_card_at_each_call(roomy):
    """By profile, the most weights that any call of the model finds on the card."""
    rig, most = roomy("sd1"), {}
    total = sum(tensor.nbytes for component in rig.host._placed.components for tensor in component.module.parameters())
    for profile in PLACEMENTS:
        seen: list[tuple[str, int]] = []
        rig.faults.should_fail = lambda call, number, args, seen=seen: bool(
            seen.append((call, rig.host._placed.resident_bytes()))
        )
        rig.make(request_for(width=64, steps=2), profile)
        most[profile] = dict(seen)
    unet = sum(tensor.nbytes for tensor in rig.model.pipeline.unet.parameters())
    assert set(most[Profile.DEDICATED].values()) == {max(most[Profile.DEDICATED].values())}
    assert max(most[Profile.DEDICATED].values()) >= total
    assert most[Profile.MEDVRAM]["unet"] == unet
    assert 0 < most[Profile.MEDVRAM]["decode"] < unet
    for profile in (Profile.LOWVRAM, Profile.SEQUENTIAL):
        assert most[profile]["unet"] < unet / 2, profile
    assert most[Profile.SEQUENTIAL]["decode"] < most[Profile.LOWVRAM]["decode"]


def test_a_switch_by_auto_leaves_the_choice_to_the_job(rig_of):
    rig = rig_of("sd1")
    rig.host.switch(Profile.AUTO)
    assert rig.placement is None
    result = rig.make(request_for(width=64, steps=2), Profile.AUTO)
    assert result.images[0].record.profile_asked == "auto"
    assert result.images[0].record.profile_used == "dedicated"
    assert any(notice.startswith("auto chose dedicated") for notice in result.notices)
    assert len(pixels(result)) == 1
