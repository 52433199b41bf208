"""Switching live: between any two profiles, with the same bytes, the same objects and nothing left behind."""

from __future__ import annotations

import itertools
import threading

import pytest
import torch

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.units import MIB
from tests.fakes.faulty_card import FaultyCard
from tests.placed_rig import PLACEMENTS, Rig, assert_same, unplaced_job, weights

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_forward_pre_hooks_with_kwargs")


def hooks_on(rig: Rig) -> int:
    return sum(
        len(getattr(module, name, ())) for part in rig.components for module in part.module.modules()
        for name in HOOKS
    )


class Identity:
    """What of a model must be the same whatever has been done to it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._tensors = weights(rig.components)
        self._facts = [(t.dtype, t.requires_grad, t.shape, t.stride()) for t in self._tensors]
        self._states = [{k: v.clone() for k, v in part.module.state_dict().items()} for part in rig.components]
        self._attributes = [set(vars(module)) for part in rig.components for module in part.module.modules()]

    def check(self) -> None:
        now = weights(self._rig.components)
        assert all(a is b for a, b in zip(now, self._tensors, strict=True))
        assert [(t.dtype, t.requires_grad, t.shape, t.stride()) for t in now] == self._facts
        for part, state in zip(self._rig.components, self._states, strict=True):
            current = part.module.state_dict()
            assert current.keys() == state.keys()
            assert all(torch.equal(current[name], tensor) for name, tensor in state.items())

    def check_untouched(self) -> None:
        self.check()
        assert hooks_on(self._rig) == 0
        attributes = [set(vars(module)) for part in self._rig.components for module in part.module.modules()]
        assert attributes == self._attributes


def mixed_rig(card=None) -> Rig:
    """With a half-precision, channels-last and a frozen weight among the others."""
    rig = Rig(card, guarded=False)
    rig.vae.module.encoder.conv_in.weight.requires_grad_(requires_grad=False)
    rig.vae.module.decoder.conv_out.to(memory_format=torch.channels_last)
    rig.text.module.final_norm.register_buffer("narrow", torch.ones(3, dtype=torch.float16))
    return rig


@pytest.fixture(scope="module")
def expected():
    return unplaced_job()


@pytest.fixture(scope="module")
def mixed_expected():
    return mixed_rig().job()


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(PLACEMENTS, 2)))
def test_between_any_two_profiles(first, second, mixed_expected):
    expected = mixed_expected
    rig = mixed_rig()
    identity = Identity(rig)
    rig.guard.install()
    rig.model.switch(first)
    assert_same(rig.run_job(), expected)
    rig.model.switch(second)
    assert rig.model.profile is second
    identity.check()
    assert_same(rig.run_job(), expected)
    identity.check()
    rig.model.undo()
    rig.guard.undo()
    identity.check_untouched()
    assert rig.card.used_bytes() == 0
    assert rig.model.profile is None


def test_twice_the_same_profile_changes_nothing():
    rig = Rig(guarded=False)
    rig.model.switch(Profile.DEDICATED)
    moved = rig.card.moved_bytes
    rig.model.switch(Profile.DEDICATED)
    assert rig.card.moved_bytes == moved


def test_undo_twice_is_undo_once():
    rig = Rig(guarded=False)
    identity = Identity(rig)
    rig.model.switch(Profile.LOWVRAM)
    rig.model.undo()
    rig.model.undo()
    identity.check_untouched()


@pytest.mark.parametrize("size", [1, 1_000, 100_000, 200_000])
def test_a_card_too_small_for_all_leaves_everything_in_system_memory(size):
    rig = Rig(SimulatedCard(size), guarded=False)
    identity = Identity(rig)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rig.model.switch(Profile.DEDICATED)
    assert rig.model.profile is None
    assert rig.on_card() == set()
    assert rig.card.used_bytes() == 0
    identity.check_untouched()
    rig.model.switch(Profile.SEQUENTIAL)
    assert rig.model.profile is Profile.SEQUENTIAL


@pytest.mark.parametrize("failing", [0, 1, 40, 100])
def test_an_apply_that_fails_half_way_leaves_everything_in_system_memory(failing):
    rig = Rig(FaultyCard(64 * MIB), guarded=False)
    identity = Identity(rig)
    rig.card.fail_put(failing)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rig.model.switch(Profile.DEDICATED)
    assert rig.model.profile is None
    assert rig.on_card() == set()
    identity.check_untouched()


@pytest.mark.parametrize("profile", PLACEMENTS)
@pytest.mark.parametrize("failing", [0, 1])
def test_an_undo_that_fails_half_way_can_be_called_again_or_repaired(profile, failing, expected):
    """Edited weights have to be fetched, and a fetch can fail; the placement in force must work on."""
    for then in ("undo", "repair"):
        rig = Rig(FaultyCard(64 * MIB))
        rig.model.switch(profile)
        leaf = rig.unet.module.conv_out

        def edit(module, args, output):
            with torch.no_grad():
                module.weight.mul_(1.0)
                module.bias.mul_(1.0)

        handle = leaf.register_forward_hook(edit)
        with torch.no_grad():
            rig.unet.module(torch.zeros(1, 4, 4, 4), torch.tensor(1), torch.zeros(1, 6, 8))
        handle.remove()
        rig.card.fail_fetch(failing)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            rig.model.undo()
        assert rig.card.raised == 1
        assert rig.model.profile is profile, "still in force"
        if then == "repair":
            rig.model.repair()
            assert_same(rig.run_job(), expected)
        rig.model.undo()
        assert rig.on_card() == set()
        assert rig.card.used_bytes() == 0
        assert hooks_on(rig) == 0


def test_a_repair_that_does_not_fit_is_made_good_by_the_next_call(expected):
    rig = Rig(FaultyCard(64 * MIB))
    rig.model.switch(Profile.DEDICATED)
    rig.card.fail_fetch(60)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rig.model.undo()
    rig.card.fail_put(10)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rig.model.repair()
    assert_same(rig.run_job(), expected)
    assert rig.on_card() == {id(tensor) for tensor in weights(rig.components)}


def test_a_switch_waits_for_a_call_of_another_thread():
    """A host decodes previews beside the sampling; what runs out there must not take the sampling's weights away."""
    rig = Rig(guarded=False)
    rig.model.switch(Profile.DEDICATED)
    switching = threading.Thread(target=rig.model.switch, args=(Profile.MEDVRAM,))
    with rig.model.component_call(rig.unet, "forward"):
        switching.start()
        switching.join(0.2)
        assert switching.is_alive()
        assert rig.on_card() == {id(tensor) for tensor in weights(rig.components)}
    switching.join(10)
    assert rig.model.profile is Profile.MEDVRAM


@pytest.mark.parametrize("profile", [Profile.AUTO, Profile.STREAM, Profile.SPILL])
def test_what_cannot_be_applied_says_why_and_changes_nothing(profile):
    rig = Rig(guarded=False)
    rig.model.switch(Profile.MEDVRAM)
    with pytest.raises(UnavailableError, match=f"“{profile}” cannot be applied, because"):
        rig.model.switch(profile)
    assert rig.model.profile is Profile.MEDVRAM


def test_spill_left_to_the_driver_has_the_whole_model_on_the_card_under_its_own_name(expected):
    by_driver = [True]
    rig = Rig()
    rig.model.spills_by_driver = lambda: by_driver[0]
    rig.model.switch(Profile.SPILL)
    assert rig.model.profile is Profile.SPILL
    assert rig.on_card() == {id(tensor) for tensor in weights(rig.components)}
    assert_same(rig.run_job(), expected)
    by_driver[0] = False
    with pytest.raises(UnavailableError, match="cannot be applied"):
        rig.model.switch(Profile.SPILL)  # this card has no link, so it cannot be ours
    assert rig.model.profile is Profile.SPILL
