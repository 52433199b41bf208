"""The profile as a whole: the same bytes out, within the budget, whenever the link happens to copy."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.units import MIB
from tests.placed_rig import Rig, assert_same, unplaced_job, weights
from tests.placement.test_switching import Identity
from tests.stream_rig import StreamRig, adversary
from tests.torch_models import RootParameterUNet, UNet

EAGERNESS = (0.0, 0.5, 1.0)


@pytest.fixture(scope="module", params=(UNet, RootParameterUNet))
def reference(request):
    return request.param, unplaced_job(unet=request.param)


@pytest.mark.parametrize("eager", EAGERNESS)
def test_the_same_bytes_come_out_at_any_budget(eager, reference):
    unet, expected = reference
    rig = StreamRig(link=adversary(eager), unet=unet)
    rig.guard.undo()
    identity = Identity(rig)
    rig.guard.install()
    for share in (0, 0.4, 0.8, 2, 0):
        rig.model.set_weights_budget(int(share * rig.unet_bytes))
        assert_same(rig.run_job(), expected)
    assert rig.rungs == []
    identity.check()
    rig.model.undo()
    rig.guard.undo()
    identity.check_untouched()
    rig.check_nothing_left()


def test_what_is_on_the_card_keeps_to_the_budget():
    rig = StreamRig()
    rig.run_job()
    floor = rig.streamed()._layouts.floor_bytes
    seen: list[int] = []

    def look(module, args):
        seen.append(rig.card.used_bytes() - rig.card._activations.sweep())

    for module in list(rig.unet.module.modules())[1:]:
        module.register_forward_pre_hook(look)
    budget = floor
    while budget < 1.3 * rig.unet_bytes:
        rig.model.set_weights_budget(budget)
        seen.clear()
        rig.run_job()
        assert 0 < max(seen) <= budget, budget
        budget += 16 * 1024
    assert max(seen) >= rig.unet_bytes, "a large budget is used"


def test_the_smallest_ring_is_taken_whatever_the_budget():
    rig = StreamRig(budget_bytes=1)
    assert_same(rig.run_job(), unplaced_job())
    engine = rig.streamed()
    assert engine.needed_bytes == engine._layouts.floor_bytes <= 2 * max(engine.plan.costs.sizes)


def test_a_steady_pass_copies_each_streamed_chunk_once_and_pins_exactly():
    rig = StreamRig(budget_bytes=1)
    rig.run_job()
    sizes = rig.streamed().plan.costs.sizes
    step = (torch.zeros(1, 4, 4, 4), torch.tensor(1), torch.zeros(1, 6, 8))
    with torch.no_grad(), rig.guard.job():
        rig.unet.module(*step)
        before = rig.link.uploads, rig.card.moved_bytes
        for _ in range(3):
            rig.unet.module(*step)
        assert rig.link.uploads - before[0] == 3 * len(sizes)
        assert rig.card.moved_bytes - before[1] == 3 * sum(sizes)
    pages = sum(-(-size // 4096) * 4096 for size in sizes)
    assert rig.ledger.pinned_bytes == rig.link.pinned_bytes == pages


def test_between_jobs_every_streamed_weight_can_be_read_and_edited():
    rig = StreamRig(budget_bytes=1)
    rig.run_job()
    other = Rig(guarded=False)
    for ours, theirs in zip(weights(rig.components), weights(other.components), strict=True):
        assert torch.equal(ours, theirs)
    for one in (rig, other):
        with torch.no_grad():
            for tensor in weights(one.components):
                if tensor.is_floating_point():
                    tensor.mul_(1.25)
    assert_same(rig.run_job(), other.job())


@pytest.mark.parametrize("share", [0, 0.5, 2])
@pytest.mark.parametrize("how", ["in place", "data"])
def test_an_edit_inside_a_call_reaches_the_master(share, how):
    rig, other = StreamRig(), Rig(guarded=False)
    rig.model.set_weights_budget(int(share * rig.unet_bytes))
    rig.run_job()
    left = [3]

    def edit(module, args):
        if left[0]:
            left[0] -= 1
            with torch.no_grad():
                if how == "in place":
                    module.weight.mul_(1.5)
                else:
                    module.weight.data = module.weight.data * 1.5

    convs = [one.unet.module.down_blocks[0].resnets[0].conv1 for one in (rig, other)]
    handles = [conv.register_forward_pre_hook(edit) for conv in convs]
    before = convs[0].weight.detach().clone()
    expected = other.job()
    left[0] = 3
    assert_same(rig.run_job(), expected)
    for handle in handles:
        handle.remove()
    assert_same(rig.run_job(), other.job())
    rig.model.undo()
    assert torch.equal(convs[0].weight, before * 1.5 * 1.5 * 1.5)
    rig.check_nothing_left()


def test_a_weight_of_another_form_is_taken_up_by_tracing_anew():
    rig, other = StreamRig(budget_bytes=1), Rig(guarded=False)
    rig.run_job()
    for one in (rig, other):
        conv = one.unet.module.conv_out
        conv.weight.data = conv.weight.data.to(memory_format=torch.channels_last)
        one.unet.module.conv_in.weight = torch.nn.Parameter(one.unet.module.conv_in.weight.detach() * 2)
    for _ in range(2):
        assert_same(rig.run_job(), other.job())
    rig.model.undo()
    rig.check_nothing_left()


def test_layers_that_are_added_and_taken_away_again():
    """As peft adds the layers of a LoRA around a layer of the model."""

    class Added(torch.nn.Module):
        def __init__(self, base_layer):
            super().__init__()
            self.base_layer, self.more = base_layer, torch.nn.Conv2d(8, 4, 1)
            torch.nn.init.constant_(self.more.weight, 0.1)
            torch.nn.init.zeros_(self.more.bias)

        def forward(self, x):
            return self.base_layer(x) + self.more(x)

    rig, other = StreamRig(budget_bytes=1), Rig(guarded=False)
    plain = rig.run_job()
    for one in (rig, other):
        one.unet.module.conv_out = Added(one.unet.module.conv_out)
    assert_same(rig.run_job(), other.job())
    assert_same(rig.run_job(), other.job())
    rig.unet.module.conv_out = rig.unet.module.conv_out.base_layer
    assert_same(rig.run_job(), plain)
    rig.model.undo()
    rig.check_nothing_left()


def test_inference_mode_leaves_ordinary_weights():
    rig, other = StreamRig(budget_bytes=1), Rig()
    other.model.switch(Profile.DEDICATED)
    with torch.inference_mode():
        for _ in range(2):
            assert_same(rig.run_job(), other.run_job())
    for one in (rig, other):
        assert not any(tensor.is_inference() for tensor in weights(one.components))
        with torch.no_grad():
            one.unet.module.conv_out.weight.mul_(2)
    with torch.inference_mode():
        assert_same(rig.run_job(), other.run_job())
    rig.model.undo()
    rig.check_nothing_left()


def test_past_the_cap_weights_stay_pageable_and_flow_all_the_same():
    rig = StreamRig(budget_bytes=1, cap_bytes=50_000)
    expected = unplaced_job()
    assert_same(rig.run_job(), expected)
    assert 40_000 < rig.ledger.pinned_bytes <= 50_000
    assert rig.link.pinned_bytes == rig.ledger.pinned_bytes
    rig.ledger.set_cap(20_000)
    assert_same(rig.run_job(), expected)
    assert rig.link.pinned_bytes == rig.ledger.pinned_bytes <= 20_000
    rig.ledger.set_cap(0)
    assert_same(rig.run_job(), expected)
    assert rig.ledger.pinned_bytes == 0
    rig.model.undo()
    rig.check_nothing_left()


def test_a_system_that_refuses_to_pin_costs_speed_only():
    rig = StreamRig(budget_bytes=1, link=adversary(pin_limit_bytes=30_000))
    assert_same(rig.run_job(), unplaced_job())
    assert rig.ledger.pinned_bytes == rig.link.pinned_bytes <= 30_000


def test_the_plan_outlives_a_change_of_profile():
    rig = StreamRig(budget_bytes=1)
    rig.run_job()
    plan = rig.streamed().plan
    rig.model.switch(Profile.DEDICATED)
    assert rig.ledger.pinned_bytes == 0
    rig.model.switch(Profile.STREAM)
    expected = unplaced_job()
    before = rig.link.uploads
    assert_same(rig.run_job(), expected)
    assert rig.streamed().plan is plan
    assert rig.link.uploads - before >= 3 * len(plan.costs.sizes), "the first step streams already"


def test_without_a_copy_engine_it_is_unavailable_and_says_why():
    rig = Rig(SimulatedCard(256 * MIB), guarded=False)
    assert "CUDA" in rig.model.unavailable_because(Profile.STREAM)
    assert rig.model.smaller(Profile.MEDVRAM) is Profile.LOWVRAM
    with pytest.raises(Exception, match="The link is unavailable, because it needs a CUDA card"):
        _ = rig.card.link


def test_the_predicted_step_is_unknown_until_it_was_measured():
    rig = StreamRig(budget_bytes=1)
    streaming = rig.model._streaming
    assert streaming.predicted_step_seconds(rig.unet) is None
    rig.run_job()
    slow = streaming.predicted_step_seconds(rig.unet)
    rig.model.set_weights_budget(2 * rig.unet_bytes)
    rig.run_job()
    assert 0 < streaming.predicted_step_seconds(rig.unet) <= slow
