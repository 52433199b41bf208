"""What every image's record says: times, bytes, predictions."""

from __future__ import annotations

import statistics
import time

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from sd_webui_spillway.timing import Outcome
from tests.hosts.rig import PLACEMENTS, Watcher

REQUEST = ImageRequest("a red circle", width=128, height=128, steps=3, seed=21, batch_size=2, sampler="euler")


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_a_record_is_complete_and_adds_up(roomy, profile):
    rig = roomy("sd1")
    rig.host.switch(profile)
    began, watcher = time.time(), Watcher()
    result = rig.make(REQUEST, profile, watcher)
    records = [image.record for image in result.images]
    assert records == watcher.records
    assert statistics.median(sum(r.stage_seconds.values()) / r.total_seconds for r in records) > 0.98
    for place, record in enumerate(records):
        assert (record.width, record.height, record.steps, record.sampler) == (128, 128, 3, "euler")
        assert (record.seed, record.batch_size, record.batch_index) == (21 + place, 2, place)
        assert (record.profile_asked, record.profile_used) == (profile.value, profile.value)
        assert (record.host, record.model, record.simulated) == ("standalone", "tiny sd1", True)
        assert "simulated" in record.device_name
        assert (record.outcome, record.message, record.rungs) == (Outcome.DELIVERED, None, ())
        assert began - 1 <= record.started_at <= time.time()
        assert sum(record.stage_seconds.values()) <= record.total_seconds * 1.0001
        assert all(seconds > 0 for seconds in record.stage_seconds.values())
        assert list(record.stage_seconds) == ["encode", "sample", "decode", "save"]
        assert record.steps_per_second == pytest.approx(3 / (2 * record.sample_seconds))
        assert record.file_path == str(result.images[place].path)
        assert len(record.record_id) == 32
    assert len({record.record_id for record in records}) == 2


@pytest.mark.parametrize("family", ["sd1", "sdxl"])
@pytest.mark.parametrize("profile", PLACEMENTS)
def test_the_peak_is_what_was_predicted(roomy, family, profile):
    rig = roomy(family)
    rig.host.switch(profile)
    result = rig.make(REQUEST, profile)
    for image in result.images:
        record = image.record
        assert record.estimated_dedicated_bytes == rig.host.predict(REQUEST)[profile].dedicated_bytes
        assert record.peak_dedicated_bytes == pytest.approx(record.estimated_dedicated_bytes, rel=0.10)
    if profile is Profile.DEDICATED:
        assert record.peak_dedicated_bytes > rig.host._placed.resident_bytes() > 0


def test_moved_bytes_are_the_weights_that_were_copied(roomy):
    rig = roomy("sd1")
    weights = sum(tensor.nbytes for tensor in rig.model.pipeline.unet.parameters())
    moved = {}
    for profile in PLACEMENTS:
        rig.host.switch(profile)
        before = rig.card.moved_bytes
        result = rig.make(REQUEST, profile)
        moved[profile] = sum(image.record.moved_bytes for image in result.images)
        assert moved[profile] == pytest.approx(rig.card.moved_bytes - before, rel=0.01, abs=2)
    assert moved[Profile.DEDICATED] == 0
    assert moved[Profile.MEDVRAM] >= weights
    # At every step all of the UNet: three times.
    assert moved[Profile.LOWVRAM] >= 3 * weights
    assert moved[Profile.SEQUENTIAL] >= moved[Profile.LOWVRAM]


def test_only_the_first_batch_after_the_model_moved_is_a_warm_up(rig_of):
    rig = rig_of("sd1")
    request = ImageRequest(width=64, height=64, steps=1, batch_count=2)
    first = rig.make(request, Profile.MEDVRAM)
    assert [image.record.warm_up for image in first.images] == [True, False]
    again = rig.make(request, Profile.MEDVRAM)
    assert [image.record.warm_up for image in again.images] == [False, False]
    moved = rig.make(request, Profile.LOWVRAM)
    assert [image.record.warm_up for image in moved.images] == [True, False]


def test_the_record_of_an_image_given_up(roomy):
    rig = roomy("sd1")
    rig.faults.should_fail = lambda call, number, args: call == "decode" and number >= 1
    request = ImageRequest(width=64, height=64, steps=2, seed=3, batch_count=2)
    watcher = Watcher()
    result = rig.make(request, Profile.SEQUENTIAL, watcher)
    (lost,) = result.given_up
    assert watcher.records[-1] == lost
    assert (lost.seed, lost.outcome, lost.file_path) == (4, Outcome.GIVEN_UP, None)
    assert lost.sample_seconds > 0
    assert lost.decode_seconds > 0, "what was tried for it counts"
    assert lost.total_seconds >= lost.sample_seconds + lost.decode_seconds
    assert lost.peak_dedicated_bytes >= result.images[0].record.peak_dedicated_bytes * 0.9
    assert "\n" not in lost.message
    assert lost.rungs[-1] == lost.message
    assert result.images[0].record.rungs == ()
