"""What auto picks, what it predicts, and the sentence it gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.planning.footprint import AllocatorOverhead, CallNeed, Footprint
from sd_webui_spillway.planning.planner import CANDIDATES, plan, predictions, spilled_by_driver
from sd_webui_spillway.units import GIB, MIB


def call(component, name, medvram, lowvram, sequential, activations, tiled=None) -> CallNeed:
    weights = {
        Profile.MEDVRAM: int(medvram * GIB), Profile.LOWVRAM: int(lowvram * GIB),
        Profile.SEQUENTIAL: int(sequential * GIB),
    }
    return CallNeed(component, name, weights, int(activations * GIB), None if tiled is None else int(tiled * GIB))


NO_OVERHEAD = AllocatorOverhead()


def footprint(decode=4.0, unet=1.0, overhead=NO_OVERHEAD) -> Footprint:
    """Of a model of 6.5 GiB, about as SDXL is."""
    calls = (
        call("text_encoder", "forward", 1.5, 1.5, 0.25, 0.125),
        call("unet", "forward", 5.0, 0.5, 0.125, unet),
        call("vae", "decode", 0.25, 0.25, 0.0625, decode, 0.5),
    )
    return Footprint(int(6.5 * GIB), calls, overhead)


PICKS = [
    # free, profile, in strips, peak
    (24.0, Profile.DEDICATED, False, 10.5),
    (10.5, Profile.DEDICATED, False, 10.5),
    (10.0, Profile.MEDVRAM, False, 6.0),
    (6.0, Profile.MEDVRAM, False, 6.0),
    (5.0, Profile.LOWVRAM, False, 4.25),
    (4.0, Profile.LOWVRAM, True, 1.625),
    (1.625, Profile.LOWVRAM, True, 1.625),
    (1.5, Profile.SEQUENTIAL, True, 1.125),
    (1.0, Profile.SEQUENTIAL, True, 1.125),
    (0.0, Profile.SEQUENTIAL, True, 1.125),
]


@pytest.mark.parametrize(("free", "profile", "tiled", "peak"), PICKS)
def test_the_fastest_that_fits(free, profile, tiled, peak):
    chosen = plan(footprint(), int(free * GIB))
    assert (chosen.profile, chosen.tiled, chosen.peak_bytes) == (profile, tiled, int(peak * GIB))


def test_strips_come_before_a_smaller_placement_of_the_unet():
    chosen = plan(footprint(decode=8.0), int(7 * GIB))
    assert (chosen.profile, chosen.tiled) == (Profile.MEDVRAM, True)


@pytest.mark.parametrize(("free", "reason"), [
    (24.0, "dedicated: it needs 10.5 GiB of the 24.0 GiB that are free."),
    (10.0, "medvram: it needs 6.0 GiB of the 10.0 GiB that are free; dedicated would need 0.5 GiB more than that."),
    (4.0, "lowvram with the VAE in strips: it needs 1.6 GiB of the 4.0 GiB that are free; dedicated would need 6.5 GiB "
          "more than that."),
    (0.5, "sequential, with the batch split: even one layer at a time needs 1.1 GiB for the unet and "
          "0.5 GiB are free."),
])
def test_one_sentence_says_why(free, reason):
    assert plan(footprint(), int(free * GIB)).reason == reason


def test_the_overhead_of_the_allocator_counts():
    overhead = AllocatorOverhead(1.5, 2.0, 100 * MIB)
    assert overhead.needed_bytes(1000 * MIB, 100 * MIB) == 1800 * MIB
    assert footprint(overhead=overhead).peak_bytes(Profile.DEDICATED) == int((6.5 * 1.5 + 8) * GIB) + 100 * MIB
    assert plan(footprint(overhead=overhead), int(10.5 * GIB)).profile is not Profile.DEDICATED


def test_strips_never_count_for_more_than_the_whole():
    need = call("vae", "decode", 1, 1, 1, 0.25, 0.5)
    assert need.activations(tiled=True) == need.activations(tiled=False) == GIB // 4
    assert call("unet", "forward", 1, 1, 1, 2).activations(tiled=True) == 2 * GIB


def test_the_widest_call_is_named():
    assert footprint().widest_call(Profile.MEDVRAM).component == "unet"
    assert footprint().widest_call(Profile.LOWVRAM).component == "vae"
    assert footprint().widest_call(Profile.LOWVRAM, tiled=True).component == "text_encoder"


def test_predictions_cover_every_candidate_and_agree_with_the_plan():
    for free in (24.0, 10.0, 5.0, 4.0, 1.0):
        rows = predictions(footprint(), int(free * GIB))
        assert list(rows) == [Profile.DEDICATED, Profile.MEDVRAM, Profile.LOWVRAM, Profile.SEQUENTIAL]
        assert {*rows, Profile.STREAM, Profile.SPILL} == {profile for profile, _ in CANDIDATES}, "this card has no link"
        chosen = plan(footprint(), int(free * GIB))
        assert rows[chosen.profile].fits == (chosen.peak_bytes <= free * GIB)


def streaming(decode=4.0, unet=1.0, overhead=NO_OVERHEAD) -> Footprint:
    """The same on a card with a copy engine: the UNet's smallest ring is 0.25 GiB."""
    found = footprint(decode, unet, overhead)
    least = {"unet": GIB // 4}
    calls = tuple(
        replace(need, weights_bytes={
            **need.weights_bytes, Profile.STREAM: least.get(need.component, need.weights_bytes[Profile.MEDVRAM]),
        })
        for need in found.calls
    )
    return replace(found, calls=calls)


@pytest.mark.parametrize(("free", "profile", "tiled"), [
    (24.0, Profile.DEDICATED, False),
    (6.0, Profile.MEDVRAM, False),
    (5.0, Profile.STREAM, False),
    (4.0, Profile.STREAM, True),
    (1.65, Profile.STREAM, True),
    (1.5, Profile.SEQUENTIAL, True),
])
def test_stream_comes_before_lowvram_where_the_card_has_it(free, profile, tiled):
    chosen = plan(streaming(), int(free * GIB))
    assert (chosen.profile, chosen.tiled) == (profile, tiled)
    assert predictions(streaming(), int(free * GIB))[profile].fits is (chosen.peak_bytes <= free * GIB)


def test_the_budget_for_weights_is_what_the_streamed_calls_leave():
    assert footprint().weights_budget(4 * GIB) is None, "nothing streams"
    assert streaming().weights_budget(4 * GIB) == 3 * GIB, "the decode has the card to itself"
    assert streaming().weights_budget(GIB // 2) == 0
    overhead = AllocatorOverhead(1.25, 2.0, 512 * MIB)
    budget = streaming(overhead=overhead).weights_budget(5 * GIB)
    assert overhead.needed_bytes(budget, GIB) == pytest.approx(5 * GIB, abs=2)


def test_the_peak_with_a_budget_is_that_of_the_call_that_fills_it():
    assert streaming(decode=1.0).peak_bytes_within(4 * GIB) == 4 * GIB
    assert streaming(decode=1.0).peak_bytes_within(24 * GIB) == 6 * GIB, "no more than all of the UNet"
    assert streaming(decode=4.0).peak_bytes_within(4 * GIB) == int(4.25 * GIB), "the decode exceeds it whatever streams"


def spilling(*, stream: bool = True) -> Footprint:
    """The same where weights can be read in place: 0.125 GiB of the model have to stay on the card."""
    found = streaming()
    calls = tuple(
        replace(need, weights_bytes={
            profile: size for profile, size in {**need.weights_bytes, Profile.SPILL: GIB // 8}.items()
            if stream or profile is not Profile.STREAM
        })
        for need in found.calls
    )
    return replace(found, calls=calls)


def test_spill_is_for_cards_without_stream():
    for free in (24.0, 6.0, 5.0, 4.0, 1.65, 1.5, 1.0):
        assert plan(spilling(), int(free * GIB)).profile is plan(streaming(), int(free * GIB)).profile
    assert plan(spilling(stream=False), 4 * GIB).profile is Profile.SPILL
    assert predictions(spilling(), 2 * GIB)[Profile.SPILL].fits, "it can be chosen all the same"


def test_spilled_weights_keep_what_no_call_needs_and_the_vae_runs_in_strips_for_them():
    assert spilling().weights_budget(4 * GIB, Profile.SPILL) == 3 * GIB, "beside the UNet, and the decode in strips"
    assert spilling().peak_bytes_within(4 * GIB, Profile.SPILL, tiled=True) == 4 * GIB
    assert spilling().strips_beside_spilled(4 * GIB)
    assert not spilling().strips_beside_spilled(24 * GIB)
    assert spilling().peak_bytes_within(24 * GIB, Profile.SPILL) == int(10.5 * GIB), "no more than the whole model"


def test_predictions_say_what_fits_and_what_lacks():
    rows = predictions(footprint(decode=8.0), int(7.0 * GIB))
    assert rows[Profile.MEDVRAM].fits
    assert rows[Profile.MEDVRAM].note == "Fits with the VAE in strips; whole it would need 8.2 GiB."
    assert rows[Profile.MEDVRAM].dedicated_bytes == 6 * GIB
    assert not rows[Profile.DEDICATED].fits
    assert rows[Profile.DEDICATED].note == "Needs 0.5 GiB more than is free; the guard would step down."
    roomy = predictions(footprint(), 24 * GIB)[Profile.DEDICATED]
    assert roomy.fits
    assert roomy.note == "Fits: 24.0 GiB are free."


def test_what_the_driver_would_spill_is_what_the_whole_model_lacks():
    left = spilled_by_driver(footprint(), 8 * GIB)
    assert (left.dedicated_bytes, left.shared_bytes, left.fits) == (8 * GIB, int(2.5 * GIB), True)
    assert left.note == "The driver would move out 2.5 GiB, as it sees fit."
    roomy = spilled_by_driver(footprint(), 12 * GIB)
    assert (roomy.dedicated_bytes, roomy.shared_bytes) == (int(10.5 * GIB), 0)


def test_auto_plans_with_no_profile_that_was_taken_out():
    whole = footprint()
    assert plan(whole.without(Profile.MEDVRAM), 10 * GIB).profile is Profile.LOWVRAM
    assert whole.offers(Profile.MEDVRAM), "the one it was made from is as before"
