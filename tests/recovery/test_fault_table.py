"""The fault table: wherever memory runs out once or twice, the job's result is the undisturbed one."""

from __future__ import annotations

from functools import cache

import pytest

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.recovery.ladder import LadderSwitches, RungKind
from sd_webui_spillway.units import MIB
from tests.fakes.faults import CallFault
from tests.fakes.faulty_card import FaultyCard
from tests.placed_rig import PLACEMENTS, Rig, assert_close, assert_same, unplaced_job, weights
from tests.torch_models import DrawingUNet

CALLS = (
    ("text", "forward", 0), ("unet", "forward", 0), ("unet", "forward", 1), ("unet", "forward", 2),
    ("vae", "encode", 0), ("vae", "decode", 0),
)
"""Component, call, and which of its calls in the job: the UNet's first, middle and last."""


@pytest.fixture(scope="module")
def expected():
    return unplaced_job()


@pytest.fixture(scope="module")
def expected_of_four():
    return unplaced_job(rows=4)


@pytest.fixture(scope="module")
def expected_drawing():
    return unplaced_job(unet=DrawingUNet)


def faulty_rig(profile: Profile, **options) -> Rig:
    rig = Rig(FaultyCard(64 * MIB), guarded=False, **options)
    rig.model.switch(profile)
    return rig


def assert_sound(rig: Rig, profile: Profile) -> None:
    """After a job and with its results gone: the profile before, its weights where it wants them, nothing else."""
    assert rig.model.profile is profile
    everything = {id(tensor) for tensor in weights(rig.components)}
    assert rig.on_card() == (everything if profile is Profile.DEDICATED else set())
    assert rig.card.used_bytes() == rig.model.resident_bytes(), "something is left on the card"


def assert_job_is_whole(rig: Rig, profile: Profile, expected, *, exact: bool = True, rows: int = 2) -> None:
    result = rig.run_job(rows=rows)
    (assert_same if exact else assert_close)(result, expected)
    del result
    assert_sound(rig, profile)


@pytest.mark.parametrize("profile", PLACEMENTS)
@pytest.mark.parametrize(("part", "call", "at_call"), CALLS)
@pytest.mark.parametrize("operation", [None, 9], ids=["at-entry", "inside-an-operation"])
def test_once_in_a_call(profile, part, call, at_call, operation, expected):
    rig = faulty_rig(profile)
    fault = CallFault(getattr(rig, part).module, call, at_call, operation=operation)
    rig.guard.install()
    with fault:
        assert_job_is_whole(rig, profile, expected)
    assert fault.left == 0, "the fault was met"
    assert [rung.kind for rung in rig.rungs] == [RungKind.RELEASE]


@pytest.mark.parametrize(("profile", "times"), [*((profile, 3) for profile in PLACEMENTS), (Profile.DEDICATED, 2)])
@pytest.mark.parametrize(("part", "call", "at_call"), [CALLS[0], CALLS[2], CALLS[4], CALLS[5]])
def test_again_and_again_in_a_call(profile, part, call, at_call, times, expected_of_four):
    expected = expected_of_four
    rig = faulty_rig(profile)
    fault = CallFault(getattr(rig, part).module, call, at_call, operation=9, times=times)
    rig.guard.install()
    with fault:
        assert_job_is_whole(rig, profile, expected, exact=False, rows=4)
    assert fault.left == 0
    assert len(rig.rungs) == times
    kinds = [rung.kind for rung in rig.rungs]
    order = list(RungKind)
    assert kinds == sorted(kinds, key=order.index)


@cache
def copies(profile: Profile) -> int:
    rig = faulty_rig(profile)
    rig.guard.install()
    before = rig.card.puts
    rig.run_job()
    return rig.card.puts - before


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.999])
@pytest.mark.parametrize("profile", PLACEMENTS[1:])
def test_in_the_middle_of_a_hooks_copy(profile, place, times, expected):
    rig = faulty_rig(profile)
    rig.guard.install()
    total = copies(profile)
    assert total > 100
    rig.card.fail_put(int(total * place), times=1)
    if times > 1:
        rig.card._failing_puts.add(rig.card.puts + int(total * place) + 3)
    assert_job_is_whole(rig, profile, expected, exact=False)
    assert rig.card.raised == times or place > 0.9
    assert rig.rungs


@pytest.mark.parametrize("copy", [0, 60])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("direction", ["fetch", "put", "fetch and put"])
def test_in_the_middle_of_a_switch_down(direction, copy, times, expected):
    """The call fails twice, so the ladder moves from dedicated to medvram; copies of that move fail too."""
    rig = faulty_rig(Profile.DEDICATED)
    fault = CallFault(rig.unet.module, "forward", 1, operation=9, times=2)
    rig.guard.install()
    if "fetch" in direction:
        rig.card.fail_fetch(copy, times)
    if "put" in direction:
        rig.card.fail_put(copy, times)
    with fault:
        assert_job_is_whole(rig, Profile.DEDICATED, expected, exact=False)
    assert fault.left == 0
    assert rig.card.raised >= times


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("profile", [Profile.MEDVRAM, Profile.LOWVRAM])
def test_in_the_middle_of_a_switch_further_down(profile, copy, expected):
    rig = faulty_rig(profile)
    edited = rig.unet.module.conv_in.weight

    def edit(module, args, output):
        module.weight.data = module.weight.data.clone()

    rig.unet.module.conv_in.register_forward_hook(edit)
    fault = CallFault(rig.unet.module, "forward", 1, operation=30, times=2)
    rig.guard.install()
    rig.card.fail_fetch(copy)
    with fault:
        assert_job_is_whole(rig, profile, expected, exact=False)
    assert rig.unet.module.conv_in.weight is edited
    assert fault.left == 0


def test_a_fault_in_a_switch_does_not_end_the_ladder(expected):
    """Three failures of the call and one of the move between: there is still a smaller placement to try."""
    switches = LadderSwitches(tile=False, split_rows=False)
    rig = faulty_rig(Profile.DEDICATED, switches=switches)
    fault = CallFault(rig.unet.module, "forward", 1, operation=9, times=4)
    rig.guard.install()
    rig.card.fail_fetch(5)
    with fault:
        assert_job_is_whole(rig, Profile.DEDICATED, expected)
    assert rig.rungs[-1].words.endswith("went from lowvram to sequential")


@pytest.mark.parametrize("copy", [0, 70])
@pytest.mark.parametrize("times", [1, 2])
def test_in_the_switch_back_after_a_job_nothing_is_lost(copy, times, expected):
    """Where the copies fail once they are made again; where they fail again, no placement is in force."""
    rig = faulty_rig(Profile.DEDICATED)
    fault = CallFault(rig.unet.module, "forward", 1, times=2)
    rig.guard.install()
    with fault, rig.guard.job():
        result = rig.job()
        assert rig.model.profile is Profile.MEDVRAM
        rig.card.fail_put(copy)
        if times == 2:
            rig.card._failing_puts.add(max(rig.card._failing_puts) + 10)
    assert_same(result, expected)
    del result
    if times == 2:
        assert rig.model.profile is None
        assert rig.on_card() == set()
        assert rig.card.used_bytes() == 0
        rig.model.switch(Profile.DEDICATED)
    assert_sound(rig, Profile.DEDICATED)
    assert_same(rig.run_job(), expected)


@pytest.mark.parametrize("profile", PLACEMENTS[1:])
def test_in_the_way_to_rest_after_a_job_nothing_is_lost(profile, expected):
    """The last layer was edited on the card, so it is fetched as the job ends, and that fails."""
    rig = faulty_rig(profile)

    def edit(module, args, output):
        module.weight.data = module.weight.data.clone()

    rig.vae.module.decoder.conv_out.register_forward_hook(edit)
    rig.guard.install()
    with rig.guard.job():
        result = rig.job()
        rig.card.fail_fetch(0)
    assert rig.card.raised == 1
    assert_same(result, expected)
    del result
    assert_sound(rig, profile)


@pytest.mark.parametrize("profile", PLACEMENTS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_module_that_draws_random_numbers_draws_the_same_again(profile, times, expected_drawing):
    rig = faulty_rig(profile, unet=DrawingUNet, switches=LadderSwitches(split_rows=False))
    if profile is Profile.SEQUENTIAL:
        times = 1
    fault = CallFault(rig.unet.module, "forward", 1, operation=40, times=times)
    rig.guard.install()
    with fault:
        assert_job_is_whole(rig, profile, expected_drawing)
    assert fault.left == 0
