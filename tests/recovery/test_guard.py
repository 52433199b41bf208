"""What the guard promises beside the fault table: what it keeps, forgets, passes through and says."""

from __future__ import annotations

import gc
import inspect
import re
import weakref

import pytest

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.recovery.ladder import LadderSwitches, RungKind
from sd_webui_spillway.units import KIB, MIB
from tests.fakes.faults import CallFault
from tests.fakes.faulty_card import FaultyCard, out_of_memory
from tests.placed_rig import PLACEMENTS, Rig, assert_close, assert_same, unplaced_job

ONLY_RELEASE = LadderSwitches(tile=False, smaller_placement=False, split_rows=False)


@pytest.fixture(scope="module")
def expected():
    return unplaced_job()


def rig_in(profile: Profile, card=None, **options) -> Rig:
    rig = Rig(card or FaultyCard(64 * MIB), guarded=False, **options)
    rig.model.switch(profile)
    return rig


def test_install_twice_is_once_and_undo_leaves_no_trace():
    rig = rig_in(Profile.MEDVRAM)
    before = [set(vars(part.module)) for part in rig.components]
    signature = inspect.signature(rig.vae.module.decode)
    rig.guard.install()
    rig.guard.install()
    assert inspect.signature(rig.vae.module.decode) == signature
    rig.guard.undo()
    rig.guard.undo()
    assert [set(vars(part.module)) for part in rig.components] == before


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_other_errors_pass_untouched_and_leave_the_placement_sound(profile, expected):
    error = ValueError("a wrong shape")
    rig = rig_in(profile)
    fault = CallFault(rig.unet.module, "forward", 1, operation=9, error=error)
    rig.guard.install()
    with pytest.raises(ValueError, match="a wrong shape") as caught, fault:
        rig.run_job()
    assert caught.value is error
    assert rig.rungs == []
    del caught
    error.__traceback__ = None
    gc.collect()
    assert rig.model.profile is profile
    assert rig.card.used_bytes() == (rig.model.resident_bytes())
    assert_same(rig.run_job(), expected)


def test_system_memory_running_out_is_not_retried():
    rig = rig_in(Profile.DEDICATED)
    fault = CallFault(rig.unet.module, "forward", 0, error=MemoryError("no system memory"))
    rig.guard.install()
    with pytest.raises(MemoryError):
        rig.run_job()
    assert fault.attempts == 1


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_nothing_of_the_failed_call_is_alive_at_the_retry(profile):
    """Without the help of the garbage collector: the traceback must be gone, and no cycle may hold it."""
    rig = rig_in(profile)
    made: list[weakref.ref] = []
    alive: list[bool] = []
    conv = rig.unet.module.mid_block.resnets[0].conv1
    start = rig.unet.module.conv_in

    def enter(module, args):
        alive.extend(reference() is not None for reference in made)

    def fail(module, args, output):
        if not made:
            made.append(weakref.ref(output))
            raise out_of_memory()

    start.register_forward_pre_hook(enter)
    conv.register_forward_hook(fail)
    rig.guard.install()
    gc.disable()
    try:
        rig.run_job()
    finally:
        gc.enable()
    assert alive
    assert not any(alive)


def test_memory_in_use_at_the_retry_is_what_it_was_before_the_call():
    rig = rig_in(Profile.DEDICATED)
    before = []

    def measure(module, args):
        before.append(rig.card.used_bytes())

    rig.unet.module.conv_in.register_forward_pre_hook(measure)
    fault = CallFault(rig.unet.module, "forward", 0, operation=60)
    rig.guard.install()
    gc.disable()
    try:
        with fault:
            rig.run_job()
    finally:
        gc.enable()
    assert before[1] == before[0]


def test_a_rung_says_what_happened_where_and_what_was_done():
    rig = rig_in(Profile.DEDICATED, whereabouts=lambda: "at step 2 of 3")
    fault = CallFault(rig.unet.module, "forward", 1, times=2)
    rig.guard.install()
    with fault:
        rig.run_job()
    used = r"UNet ran out at step 2 of 3 with \d+ KiB of 64 MiB in use: "
    assert [rung.kind for rung in rig.rungs] == [RungKind.RELEASE, RungKind.SMALLER_PLACEMENT]
    for rung, end in zip(rig.rungs, ("released what was cached and tried again", "went from dedicated to medvram"),
                         strict=True):
        assert re.fullmatch(used + end, rung.words), rung.words


def test_what_worked_is_remembered_for_the_job_and_then_forgotten(expected):
    rig = rig_in(Profile.SEQUENTIAL)
    fault = CallFault(rig.unet.module, "forward", 0, operation=9, times=2)
    rig.guard.install()
    with fault, rig.guard.job():
        assert_close(rig.job(), expected)
        assert [rung.kind for rung in rig.rungs] == [RungKind.RELEASE, RungKind.SPLIT_ROWS]
        assert fault.done == 2 * 3, "each UNet call of the job ran as two"
        rig.job()
        assert fault.done == 2 * 6
    with rig.guard.job():
        assert_same(rig.job(), expected)
    assert fault.done == 2 * 6 + 3, "a new job begins whole"
    assert len(rig.rungs) == 2


@pytest.mark.parametrize("call", ["encode", "decode"])
def test_tiling_is_remembered_too_and_can_be_planned(call, expected):
    rig = rig_in(Profile.MEDVRAM)
    child = "encoder" if call == "encode" else "decoder"
    whole = []
    getattr(rig.vae.module, child).conv_act.register_forward_hook(lambda module, args, output: whole.append(1))
    coder = getattr(rig.vae.module, child)
    forwards = CallFault(coder, "forward", 99)
    rig.guard.install()
    with rig.guard.job():
        rig.guard.plan_tiled(rig.vae, call)
        assert_close(rig.job(), expected)
        assert forwards.attempts == 0
    assert rig.rungs == []
    assert_same(rig.run_job(), expected)
    assert forwards.attempts == 1


def test_when_nothing_fits_one_sentence_says_so():
    rig = rig_in(Profile.LOWVRAM, SimulatedCard(KIB))
    rig.guard.install()
    with pytest.raises(LadderExhaustedError) as caught:
        rig.run_job()
    assert str(caught.value) == "The text encoder does not fit in 1 KiB however small its work is made."
    assert "Simulated card out of memory" in caught.value.detail
    assert rig.rungs[-1].kind is RungKind.GIVE_UP
    assert rig.rungs[-1].words == str(caught.value)
    assert rig.model.profile is Profile.LOWVRAM
    assert rig.on_card() == set()
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_after_giving_up_the_next_job_is_made(profile, expected):
    rig = rig_in(profile)
    fault = CallFault(rig.unet.module, "forward", 1, operation=9, times=50)
    rig.guard.install()
    with pytest.raises(LadderExhaustedError), fault:
        rig.run_job()
    assert rig.model.profile is profile
    fault.left = 0
    assert_same(rig.run_job(), expected)


def test_a_hook_that_needs_the_whole_batch_forbids_splitting_and_is_named():
    rig = rig_in(
        Profile.SEQUENTIAL,
        whole_batch_because=lambda part: "its ControlNet needs the whole batch" if part.name == "unet" else None,
    )
    fault = CallFault(rig.unet.module, "forward", 0, times=9)
    rig.guard.install()
    with pytest.raises(LadderExhaustedError) as caught, fault:
        rig.run_job()
    assert str(caught.value).endswith("(its rows cannot be split, because its ControlNet needs the whole batch).")
    assert [rung.kind for rung in rig.rungs] == [RungKind.RELEASE, RungKind.GIVE_UP]


@pytest.mark.parametrize(("switches", "kinds"), [
    (ONLY_RELEASE, ["release caches", "give up"]),
    (LadderSwitches(tile=False), ["release caches", "smaller placement", "smaller placement", "smaller placement",
                                  "split rows", "split rows", "give up"]),
    (LadderSwitches(smaller_placement=False), ["release caches", "tile", "split rows", "split rows", "give up"]),
    (LadderSwitches(split_rows=False), ["release caches", "tile", "smaller placement", "smaller placement",
                                        "smaller placement", "give up"]),
])
def test_rungs_come_in_order_and_only_those_allowed(switches, kinds):
    rig = rig_in(Profile.DEDICATED, switches=switches)
    fault = CallFault(rig.vae.module, "decode", 0, times=99)
    rig.guard.install()
    with pytest.raises(LadderExhaustedError), fault:
        rig.run_job(rows=4)
    assert [rung.kind.value for rung in rig.rungs] == kinds


def test_a_ladder_really_makes_room(expected):
    """No injection: cards of every size, down to where one layer no longer fits."""
    seen = set()
    for size_kib in (600, 300, 200, 120, 80, 60):
        rig = Rig(SimulatedCard(size_kib * KIB))
        rig.model.switch(Profile.MEDVRAM)
        try:
            result = rig.run_job()
        except LadderExhaustedError:
            seen.add(RungKind.GIVE_UP)
            continue
        assert_close(result, expected)
        assert rig.card.peak_bytes() <= size_kib * KIB
        seen |= {rung.kind for rung in rig.rungs}
        assert rig.model.profile is Profile.MEDVRAM
    assert RungKind.SMALLER_PLACEMENT in seen
    assert RungKind.TILE in seen


def test_fewer_rows_at_once_can_be_planned(expected):
    rig = rig_in(Profile.MEDVRAM)
    calls = CallFault(rig.unet.module, "forward", 99)
    rig.guard.install()
    assert_same(rig.run_job(), expected)
    whole = calls.attempts
    with rig.guard.job():
        rig.guard.plan_rows(rig.unet, "forward", 1)
        assert_close(rig.job(), expected)
    assert calls.attempts > 2 * whole
    assert rig.rungs == []


def test_what_a_call_calls_of_its_own_component_is_part_of_it(expected):
    """A text encoder's ``encode`` calls its ``forward``: one placement and one ladder, not two."""
    rig = rig_in(Profile.DEDICATED)
    entered = []
    original = rig.model.component_call
    rig.model.component_call = lambda component, call: entered.append(call) or original(component, call)
    encode = lambda module, args: rig.vae.module.encode(args[0].new_zeros(1, 3, 8, 8)) and None  # noqa: E731
    rig.vae.module.decoder.register_forward_pre_hook(encode)
    rig.guard.install()
    assert_same(rig.run_job(), expected)
    assert entered.count("encode") == 1


@pytest.mark.parametrize(("profile", "smaller"), [(Profile.DEDICATED, "medvram"), (Profile.LOWVRAM, "sequential")])
def test_asked_for_less_it_steps_down_before_the_next_call_and_the_picture_stays(profile, smaller, expected):
    asked = iter([False, False, True])
    rig = rig_in(profile, takes_step_down=lambda: next(asked, False))
    rig.guard.install()
    assert_same(rig.run_job(), expected)
    assert [(rung.kind, rung.words) for rung in rig.rungs] == [
        (RungKind.SMALLER_PLACEMENT, f"asked for less on the card: went from {profile} to {smaller}")
    ]
    assert rig.model.profile is profile, "the one that was chosen is back after the job"


def test_asked_for_less_where_nothing_smaller_is_left_it_goes_on(expected):
    rig = rig_in(Profile.SEQUENTIAL, takes_step_down=lambda: True)
    rig.guard.install()
    assert_same(rig.run_job(), expected)
    assert rig.rungs == []


def test_asked_for_less_where_even_that_does_not_fit_it_goes_on(expected):
    card = FaultyCard(64 * MIB)
    asked = iter([False, False, True])

    def ask() -> bool:
        if not next(asked, False):
            return False
        card.fail_fetch(3)
        return True

    rig = rig_in(Profile.DEDICATED, card, takes_step_down=ask)
    rig.guard.install()
    assert_same(rig.run_job(), expected)
    assert (card.raised, rig.model.profile) == (1, Profile.DEDICATED)
