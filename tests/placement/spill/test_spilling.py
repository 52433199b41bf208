"""The profile as a whole: the same bytes out, within the budget and the cap, and nothing left of it."""

from __future__ import annotations

import mmap

import pytest
import torch
from torch import nn

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.placement.simulated_link import RaceError
from sd_webui_spillway.placement.spill.suffering import Reading
from sd_webui_spillway.units import MIB
from tests.placed_rig import Rig, assert_same, unplaced_job, weights
from tests.placement.test_switching import Identity, hooks_on
from tests.spill_rig import SpillRig
from tests.stream_rig import adversary
from tests.torch_models import RootParameterUNet, UNet

EVERY_PROFILE = (
    Profile.DEDICATED, Profile.MEDVRAM, Profile.LOWVRAM, Profile.SEQUENTIAL, Profile.STREAM, Profile.SPILL,
)


@pytest.fixture(scope="module")
def expected():
    return unplaced_job()


@pytest.mark.parametrize("unet", [UNet, RootParameterUNet])
def test_the_same_bytes_come_out_at_any_budget(unet):
    expected = unplaced_job(unet=unet)
    rig = SpillRig(unet=unet, placed=False)
    rig.guard.undo()
    identity = Identity(rig)
    rig.guard.install()
    rig.model.switch(Profile.SPILL)
    for share in (0, 0.4, 0.8, 2, 0):
        rig.model.set_weights_budget(int(share * rig.model_bytes))
        for _ in range(2):
            assert_same(rig.run_job(), expected)
    assert rig.rungs == []
    identity.check()
    assert hooks_on(rig) == 0, "none stays once the rows are counted"
    rig.model.undo()
    rig.guard.undo()
    identity.check_untouched()
    rig.check_nothing_left()


def test_what_is_on_the_card_keeps_to_the_budget_and_the_rest_is_pinned_exactly(expected):
    rig = SpillRig(1)
    floor = rig.spilling.card_bytes
    pinned = []
    for budget in range(floor, 2 * rig.model_bytes, 30_000):
        rig.model.set_weights_budget(budget)
        rig.run_job()
        assert_same(rig.run_job(), expected)
        assert rig.card._weights.sweep() == rig.spilling.card_bytes <= budget
        assert rig.model.resident_bytes() == rig.card._weights.sweep(), "what is read in place is not on the card"
        assert rig.ledger.pinned_bytes == rig.link.pinned_bytes
        pages = sum(
            -(-piece.chunk.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            for piece in rig.spilling._pieces if piece.chunk.mapped is not None
        )
        assert rig.ledger.pinned_bytes == pages
        pinned.append(pages)
    assert pinned == sorted(pinned, reverse=True)
    assert pinned[0] > 0.9 * rig.model_bytes
    assert pinned[-1] == 0, "with room for everything nothing spills"


def test_nothing_moves_within_a_job():
    rig = SpillRig(100_000)
    rig.run_job()
    rig.run_job()
    moved, uploads = rig.card.moved_bytes, rig.link.uploads
    rig.run_job()
    assert (rig.card.moved_bytes, rig.link.uploads) == (moved, uploads)


def test_the_unets_large_products_stay_longest_and_rows_are_counted_in_the_first_call():
    rig = SpillRig(1)
    rig.run_job()
    rows = {(group.component, group.width): count for group, count in rig.spilling._rows.items()}
    assert rows["unet", 8] > rows["text_encoder", 8]
    rig.model.set_weights_budget(rig.model_bytes // 3)
    rig.run_job()
    kept = [piece.group for piece in rig.spilling._pieces if piece.chunk.slab is not None]
    gone = [piece.group for piece in rig.spilling._pieces if piece.chunk.mapped is not None]
    unets = {g for g in kept if g.component == "unet" and g.reading is Reading.MULTIPLIED}
    assert {group.width for group in unets} == {8, 16}
    assert any(group.component == "vae" and group.reading is Reading.CONVOLVED for group in gone)
    assert not any(group.component == "unet" and group.reading is Reading.MULTIPLIED for group in gone)


@pytest.mark.parametrize("profile", EVERY_PROFILE)
def test_an_edit_in_place_lasts_in_every_profile_and_comes_off_to_the_byte(profile, expected):
    """As AUTOMATIC1111's LoRA does it: into the weight, and back from a copy of it."""
    rig, other = SpillRig(60_000), Rig(guarded=False)
    rig.run_job()
    rig.model.switch(profile)
    names = ("down_blocks.0.resnets.0.conv1", "mid_block.resnets.0.time_emb_proj", "conv_norm_out", "conv_out")
    backups = {}
    for one in (rig, other):
        for name in names:
            weight = one.unet.module.get_submodule(name).weight
            backups[id(weight)] = weight.detach().clone()
            with torch.no_grad():
                weight += torch.full_like(weight, 0.25)
    wanted = other.job()
    assert not torch.equal(wanted["picture"], expected["picture"])
    assert_same(rig.run_job(), wanted)
    for then in (Profile.SPILL, Profile.DEDICATED, profile):
        rig.model.switch(then)
        rig.model.set_weights_budget(60_000 if then is Profile.SPILL else 1)
        assert_same(rig.run_job(), wanted)
    for name in names:
        weight = rig.unet.module.get_submodule(name).weight
        with torch.no_grad():
            weight.copy_(backups[id(weight)])
    assert_same(rig.run_job(), expected)
    rig.model.undo()
    rig.check_nothing_left()


@pytest.mark.parametrize("how", ["in place", "data"])
@pytest.mark.parametrize("share", [0, 0.5, 2])
def test_an_edit_inside_a_call_is_the_masters(how, share):
    rig, other = SpillRig(), Rig(guarded=False)
    rig.model.set_weights_budget(int(share * rig.model_bytes))
    rig.run_job()
    left = [1]

    def edit(module, args):
        if left.pop() if left else False:
            with torch.no_grad():
                if how == "in place":
                    module.weight.mul_(1.5)
                else:
                    module.weight.data = module.weight.data * 1.5

    convs = [one.unet.module.down_blocks[0].resnets[0].conv1 for one in (rig, other)]
    handles = [conv.register_forward_pre_hook(edit) for conv in convs]
    before = convs[0].weight.detach().clone()
    expected = other.job()
    left.append(1)
    assert_same(rig.run_job(), expected)
    for handle in handles:
        handle.remove()
    assert_same(rig.run_job(), other.job())
    rig.model.undo()
    assert torch.equal(convs[0].weight, before * 1.5)
    rig.check_nothing_left()


def test_a_weight_of_another_form_and_layers_that_are_added(expected):
    """As peft adds the layers of a LoRA around a layer of the model, and takes them away again."""

    class Added(nn.Module):
        def __init__(self, base_layer: nn.Module) -> None:
            super().__init__()
            self.base_layer, self.more = base_layer, nn.Conv2d(8, 4, 1)
            nn.init.constant_(self.more.weight, 0.1)
            nn.init.zeros_(self.more.bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base_layer(x) + self.more(x)

    rig, other = SpillRig(1), Rig(guarded=False)
    assert_same(rig.run_job(), expected)
    for one in (rig, other):
        unet = one.unet.module
        unet.conv_out = Added(unet.conv_out)
        unet.conv_in.weight = nn.Parameter(unet.conv_in.weight.detach().clone() * 2)
        conv = unet.mid_block.resnets[0].conv1
        conv.weight.data = conv.weight.data.to(memory_format=torch.channels_last)
        norm = unet.up_blocks[0].resnets[0].conv1
        norm.weight.data = norm.weight.data.transpose(2, 3)  # a view of memory that is read in place
    for _ in range(2):
        assert_same(rig.run_job(), other.job())
    rig.model.undo()
    rig.check_nothing_left()


def test_past_the_cap_weights_stay_on_the_card(expected):
    rig = SpillRig(1, cap_bytes=100_000)
    assert_same(rig.run_job(), expected)
    assert 80_000 < rig.ledger.pinned_bytes == rig.link.pinned_bytes <= 100_000
    assert rig.spilling.card_bytes > rig.model_bytes - 110_000
    for cap in (40_000, 300_000, 0, 64 * MIB):
        rig.ledger.set_cap(cap)
        rig.run_job()
        rig.model.set_weights_budget(1)
        assert_same(rig.run_job(), expected)
        assert rig.ledger.excess_bytes == 0
        assert rig.ledger.pinned_bytes == rig.link.pinned_bytes
    assert rig.spilling.card_bytes < 20_000, "what may be pinned again is"
    rig.model.undo()
    rig.check_nothing_left()


def test_a_system_that_refuses_to_pin_leaves_the_rest_on_the_card(expected):
    rig = SpillRig(1, link=adversary(pin_limit_bytes=50_000))
    assert_same(rig.run_job(), expected)
    assert rig.ledger.pinned_bytes == rig.link.pinned_bytes <= 50_000


def test_what_fits_neither_on_the_card_nor_under_the_cap_is_said_in_one_sentence():
    link = adversary()
    rig = SpillRig(1, card=SimulatedCard(200_000, link), link=link, cap_bytes=100_000, placed=False)
    rig.guard.undo()
    identity = Identity(rig)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="cannot be read in place, because the cap on shared memory"):
        rig.model.switch(Profile.SPILL)
    assert rig.model.profile is None
    rig.check_nothing_left()
    identity.check_untouched()


def test_a_card_that_does_not_read_in_place_says_so_and_loses_nothing(expected):
    class Unread(type(adversary())):
        def mapped(self, slab):
            raise UnavailableError("Reading in place is unavailable, because the driver refuses it (error 801).")

    rig = SpillRig(1, link=Unread(), placed=False)
    with pytest.raises(UnavailableError, match="the driver refuses it"):
        rig.model.switch(Profile.SPILL)
    rig.check_nothing_left()
    rig.model.switch(Profile.MEDVRAM)
    assert_same(rig.run_job(), expected)


def test_using_memory_that_is_no_longer_pinned_is_a_race():
    rig = SpillRig(1)
    kept = rig.unet.module.conv_in.weight.data
    assert rig.link.maps(kept)
    rig.model.undo()
    with pytest.raises(RaceError, match="no longer pinned"), rig.card.call_scope(()):
        kept.sum()


def test_without_a_link_it_is_unavailable_and_says_why():
    rig = Rig(SimulatedCard(256 * MIB), guarded=False)
    assert "CUDA" in rig.model.unavailable_because(Profile.SPILL)


def test_inference_mode_leaves_ordinary_weights():
    rig, other = SpillRig(1), Rig()
    other.model.switch(Profile.DEDICATED)
    with torch.inference_mode():
        for budget in (1, 100_000, 1):
            rig.model.set_weights_budget(budget)
            assert_same(rig.run_job(), other.run_job())
    rig.model.undo()
    assert not any(tensor.is_inference() for tensor in weights(rig.components))
