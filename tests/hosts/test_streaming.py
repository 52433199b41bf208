"""Real pipelines through the ring and read in place: the same picture to the byte, planned and chosen by auto."""

from __future__ import annotations

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from sd_webui_spillway.placement.spill import SpillOptions
from sd_webui_spillway.placement.stream import layout
from tests.hosts.rig import FaultyCard, Watcher, pixels, same
from tests.stream_rig import adversary


class StreamingCard(FaultyCard):
    """With a link, so that the host has the ``stream`` profile."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(total_bytes)
        self._link, self.no_link_because = adversary(0.3), None


@pytest.fixture
def streaming(rig_of, monkeypatch):
    """Makes hosts that cut even a tiny UNet into many chunks."""
    monkeypatch.setattr(layout, "_SMALLEST_CHUNK", 64 * 1024)
    monkeypatch.setattr("tests.hosts.rig.FaultyCard", StreamingCard)
    return rig_of


def request_for(**changes) -> ImageRequest:
    return ImageRequest(**{"prompt": "a red circle", "width": 64, "height": 64, "steps": 3, "seed": 11, **changes})


def streamed_chunks(rig) -> int:
    composition = rig.host._placed._streaming._streamed["unet"]._composition
    return len(composition.chunks)


@pytest.mark.parametrize("family", ["sd1", "sdxl"])
def test_the_same_picture_as_dedicated(streaming, family):
    rig = streaming(family)
    assert Profile.STREAM not in rig.host.info().unavailable_profiles
    wanted = rig.pictures(request_for(), Profile.DEDICATED)
    result = rig.make(request_for(), Profile.STREAM)
    assert same(pixels(result), wanted)
    assert result.images[0].record.profile_used == "stream"
    assert rig.host._rungs == []
    rig.host.switch(Profile.STREAM)
    for request in (request_for(), request_for(steps=2, batch_size=2)):
        expected = rig.pictures(request, Profile.MEDVRAM)
        rig.host.switch(Profile.STREAM)
        assert same(rig.pictures(request, Profile.STREAM), expected)


def test_auto_streams_where_only_part_of_the_unet_fits(streaming):
    request = request_for(batch_size=16, steps=2)  # or the text encoder would need more than the UNet
    roomy = streaming("sd1")
    wanted = roomy.pictures(request, Profile.DEDICATED)
    rows = roomy.host.predict(request)
    assert rows[Profile.STREAM].dedicated_bytes < rows[Profile.MEDVRAM].dedicated_bytes
    size = (rows[Profile.STREAM].dedicated_bytes + rows[Profile.MEDVRAM].dedicated_bytes) // 2
    roomy.host.close()
    rig = streaming("sd1", size)
    assert rig.host.choose(request).profile is Profile.STREAM
    watcher = Watcher()
    result = rig.make(request, Profile.AUTO, watcher)
    assert same(pixels(result), wanted, within=1)
    assert {image.record.profile_used for image in result.images} == {"stream"}
    assert rig.card.peak_bytes() <= size
    assert watcher.rungs == []
    assert streamed_chunks(rig) > 10
    pinned = rig.host.memory_providers()[0].read().values["shared_pinned_bytes"]
    assert pinned == rig.host._ledger.pinned_bytes > 0
    rig.host.close()
    assert rig.host._ledger.pinned_bytes == 0


def test_spilled_weights_leave_the_same_picture_within_what_was_planned(streaming, monkeypatch):
    for module in ("placement.placed_model", "hosts.footprint_meter"):
        monkeypatch.setattr(f"sd_webui_spillway.{module}.SpillOptions", lambda: SpillOptions(64 * 1024, 1024))
    request = request_for(batch_size=4)
    roomy = streaming("sd1")
    wanted = roomy.pictures(request, Profile.DEDICATED)
    rows = roomy.host.predict(request)
    assert rows[Profile.SPILL].dedicated_bytes < rows[Profile.STREAM].dedicated_bytes
    size = (rows[Profile.SPILL].dedicated_bytes + rows[Profile.MEDVRAM].dedicated_bytes) // 2
    roomy.host.close()
    rig = streaming("sd1", size)
    assert Profile.SPILL not in rig.host.info().unavailable_profiles
    assert rig.host.choose(request).profile is not Profile.SPILL
    result = rig.make(request, Profile.SPILL)
    assert same(pixels(result), wanted, within=1)
    record = result.images[0].record
    assert record.profile_used == "spill"
    # The budget is filled to the last byte, and what a pipeline keeps between its calls was not counted.
    assert all("released" in words or "lowered what the weights" in words for words in rig.host._rungs)
    assert rig.card.peak_bytes() <= record.estimated_dedicated_bytes <= size
    assert rig.host.memory_providers()[0].read().values["shared_pinned_bytes"] == rig.host._ledger.pinned_bytes > 0
    rig.host._ledger.set_cap(0)
    assert rig.host.predict(request)[Profile.SPILL].dedicated_bytes > rows[Profile.MEDVRAM].dedicated_bytes
    rig.host.close()
    assert rig.host._ledger.pinned_bytes == 0
