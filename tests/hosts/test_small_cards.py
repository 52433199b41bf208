"""Cards that really are too small: what the ladder reaches, what is given up, and what is kept."""

from __future__ import annotations

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.timing import Outcome
from tests.hosts.rig import PLACEMENTS, Watcher, pixels, same

BATCH = ImageRequest("a red circle", width=128, height=128, steps=2, seed=5, batch_size=2)


def needs(rig, profile, request=BATCH):
    return rig.host.predict(request)[profile].dedicated_bytes


@pytest.mark.parametrize("family", ["sd1", "sdxl"])
def test_smaller_and_smaller_cards_deliver_every_image(rig_of, family):
    roomy_rig = rig_of(family)
    wanted = roomy_rig.pictures(BATCH, Profile.DEDICATED)
    sizes = {profile: needs(roomy_rig, profile) for profile in PLACEMENTS}
    assert sizes[Profile.DEDICATED] > sizes[Profile.MEDVRAM] >= sizes[Profile.LOWVRAM] >= sizes[Profile.SEQUENTIAL]
    roomy_rig.host.close()
    for size in (int(sizes[Profile.DEDICATED] * 0.97), int(sizes[Profile.SEQUENTIAL] * 1.005)):
        rig = rig_of(family, size)
        watcher = Watcher()
        result = rig.make(BATCH, Profile.DEDICATED, watcher)
        assert same(pixels(result), wanted, within=1), size
        assert watcher.rungs
        assert all(image.record.peak_dedicated_bytes <= size for image in result.images)
        assert rig.card.peak_bytes() <= size
        rig.host.close()


def test_auto_fits_its_plan_without_any_rung(rig_of):
    roomy_rig = rig_of("sd1")
    sizes = {profile: needs(roomy_rig, profile) for profile in (Profile.DEDICATED, Profile.MEDVRAM)}
    roomy_rig.host.close()
    for profile, size in sizes.items():
        rig = rig_of("sd1", int(size * 1.01))
        assert rig.host.choose(BATCH).profile is profile
        watcher = Watcher()
        result = rig.make(BATCH, Profile.AUTO, watcher)
        assert watcher.rungs == []
        assert {image.record.profile_used for image in result.images} == {profile.value}
        rig.host.close()


def test_memory_for_nothing_at_all_is_one_sentence(rig_of):
    rig = rig_of("sd1", 500_000)
    watcher = Watcher()
    with pytest.raises(LadderExhaustedError) as caught:
        rig.make(BATCH, Profile.DEDICATED, watcher)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert "does not fit" in sentence
    assert [record.outcome for record in watcher.records] == [Outcome.GIVEN_UP, Outcome.GIVEN_UP]
    assert not list(rig.folder.glob("*.png"))
    assert rig.card.used_bytes() <= 64


def test_only_the_image_that_cannot_be_made_is_given_up(roomy):
    """Of 2 × 2 images the third fits in no way, alone or beside another: the other three are delivered."""
    rig = roomy("sd1")
    request = ImageRequest("a red circle", width=64, height=64, steps=2, seed=5, batch_size=2, batch_count=2)
    wanted = rig.pictures(request, Profile.MEDVRAM)
    watcher = Watcher()
    rig.faults.should_fail = lambda call, number, args: call == "decode" and len(watcher.records) == 2
    rig.host.switch(Profile.MEDVRAM)
    result = rig.make(request, Profile.MEDVRAM, watcher)
    assert same(pixels(result), [wanted[0], wanted[1], wanted[3]], within=1)
    assert [image.record.seed for image in result.images] == [5, 6, 8]
    (lost,) = result.given_up
    assert (lost.seed, lost.outcome, lost.file_path) == (7, Outcome.GIVEN_UP, None)
    assert "VAE does not fit" in lost.message
    assert lost.rungs
    assert len(watcher.records) == 4
    assert rig.placement is Profile.MEDVRAM
    rig.faults.reset()
    assert same(rig.pictures(request, Profile.MEDVRAM), wanted)


def test_what_is_finished_stays_when_everything_after_it_fails(roomy):
    rig = roomy("sd1")
    request = ImageRequest("a red circle", width=64, height=64, steps=2, seed=5, batch_size=1, batch_count=3)
    rig.host.switch(Profile.LOWVRAM)
    watcher = Watcher()
    rig.faults.should_fail = lambda call, number, args: call == "unet" and bool(watcher.records)
    result = rig.make(request, Profile.LOWVRAM, watcher)
    assert [image.record.seed for image in result.images] == [5]
    assert result.images[0].path.is_file()
    assert [record.seed for record in result.given_up] == [6, 7]
    assert rig.placement is Profile.LOWVRAM
