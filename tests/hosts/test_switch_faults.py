"""Out of memory while weights move between two profiles: the model stays whole and the next image is right."""

from __future__ import annotations

import pytest

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from tests.hosts.rig import PLACEMENTS, Watcher, pixels, same

REQUEST = ImageRequest("a red circle", width=64, height=64, steps=1, seed=5)


@pytest.mark.parametrize("number", [0, 40, 200])
@pytest.mark.parametrize("before", [None, *PLACEMENTS[1:]])
def test_a_switch_that_does_not_fit_leaves_the_profile_before(roomy, before, number):
    rig = roomy("sd1")
    rig.host._placed.undo()
    if before is not None:
        rig.host.switch(before)
    used = rig.card.used_bytes()
    rig.card.arm(puts={number})
    with pytest.raises(UnavailableError, match=f"does not fit in 64.0 GiB; {before or 'no profile'} stays in force"):
        rig.host.switch(Profile.DEDICATED)
    assert rig.placement is before
    assert abs(rig.card.used_bytes() - used) <= 64
    rig.host.switch(Profile.DEDICATED)
    assert rig.placement is Profile.DEDICATED


@pytest.mark.parametrize("number", [0, 40, 200])
def test_copies_back_that_run_out_in_a_switch(roomy, number):
    """Half of the weights are back in system memory when it happens."""
    rig = roomy("sd1")
    wanted = rig.pictures(REQUEST, Profile.MEDVRAM)
    rig.host.switch(Profile.DEDICATED)
    used = rig.card.used_bytes()
    rig.card.arm(fetches={number})
    with pytest.raises(UnavailableError, match="dedicated stays in force"):
        rig.host.switch(Profile.LOWVRAM)
    assert rig.placement is Profile.DEDICATED
    assert rig.card.used_bytes() == used
    assert same(rig.pictures(REQUEST, Profile.DEDICATED), wanted)
    rig.host.switch(Profile.LOWVRAM)
    assert same(rig.pictures(REQUEST, Profile.LOWVRAM), wanted)


def test_a_job_whose_profile_no_longer_fits_goes_on_in_a_smaller_one(roomy):
    rig = roomy("sd1")
    wanted = rig.pictures(REQUEST, Profile.MEDVRAM)
    rig.host.switch(Profile.SEQUENTIAL)
    rig.card.arm(puts={100})
    watcher = Watcher()
    result = rig.make(REQUEST, Profile.DEDICATED, watcher)
    assert same(pixels(result), wanted)
    assert watcher.rungs == ["the model does not fit in 64.0 GiB as dedicated: went from dedicated to medvram"]
    assert watcher.profiles[0] is Profile.MEDVRAM
    record = result.images[0].record
    assert (record.profile_asked, record.profile_used) == ("dedicated", "medvram")
    assert rig.placement is Profile.SEQUENTIAL


def test_the_users_profile_that_cannot_come_back_after_a_job_costs_no_image(roomy):
    rig = roomy("sd1")
    wanted = rig.pictures(REQUEST, Profile.MEDVRAM)
    rig.host.switch(Profile.DEDICATED)
    rig.faults.fail("unet", 0, 2)  # to medvram; on the way back to dedicated the card is full, more than once
    rig.card.arm()
    in_job = Watcher()
    in_job.image = lambda record: rig.card.arm(puts={5, 6, 7, 8}) or record
    assert same(pixels(rig.make(REQUEST, Profile.DEDICATED, in_job)), wanted)
    rig.card.arm()
    assert same(rig.pictures(REQUEST, Profile.DEDICATED), wanted)
    assert rig.placement is Profile.DEDICATED
