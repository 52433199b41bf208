"""The fault table: out of memory at every place of a job, in every profile; no image is lost or changed.

The card has room for everything, so each fault is one that was put there. Retried whole or under a smaller placement,
an image is the same to the byte; with rows split or the VAE in strips it is within 1/255.
"""

from __future__ import annotations

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from tests.hosts.rig import PLACEMENTS, Watcher, pixels, same

STEPS = 3
CALLS = {
    "text encoder": ("text_encoder", 0),
    "negative prompt": ("text_encoder", 1),
    "first UNet call": ("unet", 0),
    "middle UNet call": ("unet", 1),
    "last UNet call": ("unet", 2),
    "VAE decode of the first": ("decode", 0),
    "VAE decode of the second": ("decode", 1),
}
_undisturbed: dict[tuple, list] = {}


def request_for(picture=None) -> ImageRequest:
    # At strength 1 image-to-image takes as many steps as text-to-image.
    return ImageRequest("a red circle", width=64, height=64, steps=STEPS, seed=5, batch_size=2, init_image=picture,
                        strength=1.0)  # fmt: skip


def undisturbed(rig, family, request):
    key = (family, request)
    if key not in _undisturbed:
        _undisturbed[key] = rig.pictures(request, Profile.MEDVRAM)
    return _undisturbed[key]


def own_placement(rig, profile):
    """The user's own profile in force, as between two jobs; returns what is then on the card."""
    rig.host.switch(profile)
    rig.host._placed.rest()
    return rig.card.used_bytes()


def check_recovered(rig, family, request, profile, before, *, within=0):
    wanted = undisturbed(rig, family, request)
    watcher = Watcher()
    result = rig.make(request, profile, watcher)
    assert same(pixels(result), wanted, within=within)
    assert result.given_up == ()
    assert rig.placement is profile
    assert abs(rig.card.used_bytes() - before) <= 64  # a scalar or two that the scheduler keeps
    return result, watcher


@pytest.mark.parametrize("profile", PLACEMENTS)
@pytest.mark.parametrize("place", CALLS)
def test_a_call_that_runs_out_once_is_made_again(roomy, place, profile):
    rig, request = roomy("sd1"), request_for()
    undisturbed(rig, "sd1", request)
    before = own_placement(rig, profile)
    call, number = CALLS[place]
    rig.faults.fail(call, number)
    result, watcher = check_recovered(rig, "sd1", request, profile, before)
    assert rig.faults.raised == 1
    assert len(watcher.rungs) == 1
    assert "released what was cached and tried again" in watcher.rungs[0]
    if call == "unet":
        assert f"UNet ran out at step {number + 1} of {STEPS}" in watcher.rungs[0]
    hit = {1} if place == "VAE decode of the second" else {0} if place == "VAE decode of the first" else {0, 1}
    for place_in_batch, delivered in enumerate(result.images):
        assert delivered.record.rungs == (tuple(watcher.rungs) if place_in_batch in hit else ())


@pytest.mark.parametrize(("call", "operation"), [("unet", 0), ("unet", 200), ("decode", 120)])
def test_wherever_in_the_call_it_is(roomy, call, operation):
    rig, request = roomy("sd1"), request_for()
    undisturbed(rig, "sd1", request)
    before = own_placement(rig, Profile.LOWVRAM)
    rig.faults.fail(call, 1, operation=operation)
    check_recovered(rig, "sd1", request, Profile.LOWVRAM, before)
    assert rig.faults.raised == 1


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_the_encoding_of_the_start_picture(roomy, start_picture, profile):
    rig, request = roomy("sd1"), request_for(start_picture)
    undisturbed(rig, "sd1", request)
    before = own_placement(rig, profile)
    rig.faults.fail("encode", 0)
    _, watcher = check_recovered(rig, "sd1", request, profile, before)
    assert rig.faults.raised == 1
    assert "VAE ran out" in watcher.rungs[0]


@pytest.mark.parametrize(
    ("profile", "call", "number"),
    [
        (Profile.DEDICATED, "text_encoder", 0),
        (Profile.SEQUENTIAL, "text_encoder_2", 1),
        (Profile.LOWVRAM, "unet", 1),
        (Profile.MEDVRAM, "decode", 0),
    ],
)
def test_sdxl(roomy, profile, call, number):
    rig, request = roomy("sdxl"), request_for()
    undisturbed(rig, "sdxl", request)
    before = own_placement(rig, profile)
    rig.faults.fail(call, number)
    _, watcher = check_recovered(rig, "sdxl", request, profile, before)
    assert rig.faults.raised == len(watcher.rungs) == 1


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (2, ["released", "from dedicated to medvram"]),
        (4, ["released", "from dedicated to medvram", "from medvram to lowvram", "from lowvram to sequential"]),
    ],
)
def test_a_call_that_keeps_running_out_goes_to_smaller_placements(roomy, times, said):
    rig, request = roomy("sd1"), request_for()
    undisturbed(rig, "sd1", request)
    before = own_placement(rig, Profile.DEDICATED)
    rig.faults.fail("unet", 1, times)
    result, watcher = check_recovered(rig, "sd1", request, Profile.DEDICATED, before)
    assert len(watcher.rungs) == len(said)
    assert all(words in rung for words, rung in zip(said, watcher.rungs, strict=True))
    assert result.images[0].record.profile_used == said[-1].rsplit(" ", 1)[1]
    assert watcher.profiles[-1].value == result.images[0].record.profile_used


def test_a_batch_that_fits_in_no_placement_is_split_by_rows(roomy):
    rig, request = roomy("sd1"), request_for()
    undisturbed(rig, "sd1", request)
    before = own_placement(rig, Profile.LOWVRAM)
    rig.faults.should_fail = lambda call, number, args: call == "unet" and args[0].shape[0] > 1
    _, watcher = check_recovered(rig, "sd1", request, Profile.LOWVRAM, before, within=1)
    assert "ran 4 rows as 2 at a time" in watcher.rungs[-2]
    assert "ran 4 rows as 1 at a time" in watcher.rungs[-1]
    assert rig.faults.raised == 4  # what worked is remembered for the job: only the first step's call is searched for


@pytest.mark.parametrize("call", ["decode", "encode"])
def test_a_vae_that_runs_out_twice_runs_in_strips(roomy, start_picture, call):
    rig, request = roomy("sd1"), request_for(start_picture)
    undisturbed(rig, "sd1", request)
    before = own_placement(rig, Profile.MEDVRAM)
    rig.faults.fail(call, 0, 2)
    _, watcher = check_recovered(rig, "sd1", request, Profile.MEDVRAM, before, within=1)
    assert len(watcher.rungs) == 2
    assert f"ran the {call} in strips" in watcher.rungs[1]


@pytest.mark.parametrize("profile", PLACEMENTS[1:])
def test_a_copy_to_the_card_that_runs_out(roomy, profile):
    """The first copy of all, one in the middle of the UNet's, and one of the last, in the VAE's."""
    rig, request = roomy("sd1"), request_for()
    undisturbed(rig, "sd1", request)
    own_placement(rig, profile)
    rig.card.arm()
    rig.make(request, profile)
    for number in (0, rig.card.puts // 2, rig.card.puts - 3):
        before = own_placement(rig, profile)
        rig.card.arm(puts={number})
        _, watcher = check_recovered(rig, "sd1", request, profile, before)
        assert len(watcher.rungs) == 1
        assert "tried again" in watcher.rungs[0]


def test_copies_that_run_out_while_a_rung_is_taken(roomy):
    """The UNet runs out as dedicated, and so do the copies of the placement that should help."""
    rig, request = roomy("sd1"), request_for()
    undisturbed(rig, "sd1", request)
    before = own_placement(rig, Profile.DEDICATED)
    rig.faults.fail("unet", 1, 3)
    rig.card.arm(puts={4}, fetches={3})
    _, watcher = check_recovered(rig, "sd1", request, Profile.DEDICATED, before)
    assert any("from dedicated to medvram" in rung for rung in watcher.rungs)
