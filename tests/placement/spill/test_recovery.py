"""Out of memory under spill: the budget falls by what the call lacked, and what fails half way is made good."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.ladder import RungKind
from sd_webui_spillway.units import MIB
from tests.fakes.faults import CallFault
from tests.fakes.faulty_card import out_of_memory
from tests.placed_rig import Rig, assert_same, unplaced_job
from tests.placement.stream.test_recovery import steps
from tests.placement.test_switching import Identity
from tests.spill_rig import SpillRig
from tests.stream_rig import PlannedError, adversary


class Card(SimulatedCard):
    """Its puts and slabs can be told to fail."""

    def __init__(self, total_bytes: int = 256 * MIB) -> None:
        super().__init__(total_bytes, adversary())
        self.left: int | None = None

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise out_of_memory()

    def put(self, tensor):
        self._count()
        return super().put(tensor)

    def slab(self, size_bytes):
        self._count()
        return super().slab(size_bytes)


@pytest.fixture(scope="module")
def expected():
    return unplaced_job()


def kinds(rig: Rig) -> list[RungKind]:
    return [rung.kind for rung in rig.rungs]


@pytest.mark.parametrize("failing", [0, 3, 60, 80, 100])
def test_out_of_memory_while_applying_leaves_everything_in_system_memory(failing, expected):
    card = Card()
    rig = SpillRig(200_000, card=card, link=card.link, placed=False)
    rig.guard.undo()
    identity = Identity(rig)
    card.left = failing
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rig.model.switch(Profile.SPILL)
    assert rig.model.profile is None
    rig.check_nothing_left()
    identity.check_untouched()
    rig.model.switch(Profile.SPILL)
    rig.guard.install()
    assert_same(rig.run_job(), expected)


@pytest.mark.parametrize("place", ["down_blocks.0.resnets.1", "mid_block.attentions.0", "conv_out"])
@pytest.mark.parametrize("budget", [1, 150_000])
def test_an_exception_in_the_middle_of_a_pass_loses_nothing(place, budget, expected):
    rig = SpillRig(budget)
    identity = Identity(rig)

    def fail(module, args):
        raise PlannedError("planned by the test")

    handle = rig.unet.module.get_submodule(place).register_forward_pre_hook(fail)
    with pytest.raises(PlannedError):
        rig.run_job()
    handle.remove()
    identity.check()
    assert_same(rig.run_job(), expected)
    rig.model.undo()
    rig.check_nothing_left()


def test_the_budget_falls_by_what_the_call_lacked_and_comes_back_after_the_job():
    rig = SpillRig(200_000)
    wanted = steps(rig)
    rig.card.reset_peak()
    steps(rig)
    activations = rig.card.peak_bytes() - rig.spilling.card_bytes
    card = SimulatedCard(rig.card.peak_bytes() - activations // 2, adversary())
    small = SpillRig(200_000, card=card, link=card.link)
    assert torch.equal(steps(small), wanted)
    lowered = [rung for rung in small.rungs if rung.kind is RungKind.LOWER_BUDGET]
    assert lowered
    assert "lowered what the weights take on the card from" in lowered[0].words
    assert RungKind.SMALLER_PLACEMENT not in kinds(small)
    assert small.spilling._lowered_bytes is None, "for the rest of the job, not for ever"
    assert card.peak_bytes() <= card.total_bytes
    small.model.undo()
    small.check_nothing_left()


def test_with_all_spilled_or_the_cap_reached_comes_the_next_placement(expected):
    for cap in (64 * MIB, 0):
        rig = SpillRig(1, cap_bytes=cap)
        rig.guard.undo()
        fault = CallFault(rig.unet.module, "forward", 1, operation=20, times=3)
        rig.guard.install()
        with fault:
            assert_same(rig.run_job(), expected)
        assert RungKind.SMALLER_PLACEMENT in kinds(rig)
        assert "went from spill to stream" in " ".join(rung.words for rung in rig.rungs)
        assert rig.model.profile is Profile.SPILL, "settled after the job"
        rig.model.undo()
        rig.check_nothing_left()


def test_room_that_turns_out_not_to_be_there_is_given_up_again(expected):
    card = Card()
    rig = SpillRig(1, card=card, link=card.link)
    rig.run_job()
    rig.model.set_weights_budget(10 * rig.model_bytes)
    card.left = 10
    assert_same(rig.run_job(), expected)
    assert RungKind.RELEASE in kinds(rig)
    assert not rig.spilled()


@pytest.mark.parametrize("number", [0, 3, 9])
def test_a_copy_that_fails_while_weights_come_back_is_recovered(number, expected):
    rig = SpillRig(1)
    rig.run_job()
    rig.model.set_weights_budget(10 * rig.model_bytes)
    rig.link.fail(number)
    assert_same(rig.run_job(), expected)
    rig.model.undo()
    rig.check_nothing_left()


def test_an_edit_is_not_lost_where_giving_up_room_fails(expected):
    card = Card()
    rig, other = SpillRig(10**9, card=card, link=card.link), Rig(guarded=False)
    rig.run_job()
    for one in (rig, other):
        with torch.no_grad():
            one.unet.module.conv_in.weight.mul_(1.5)
    wanted = other.job()
    original = card.fetch_into

    def fail(tensor, target):
        card.fetch_into = original
        raise out_of_memory()

    card.fetch_into = fail
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rig.model.set_weights_budget(1)
    assert_same(rig.run_job(), wanted)
    assert rig.spilled()
    rig.model.undo()
    rig.check_nothing_left()
