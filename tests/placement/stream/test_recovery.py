"""Out of memory while streaming: the call is made smaller by what it lacked; the job goes on with the same bytes."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.ladder import RungKind
from sd_webui_spillway.recovery.out_of_memory import lacking_bytes
from sd_webui_spillway.units import GIB, MIB
from tests.fakes.faults import CallFault
from tests.fakes.faulty_card import FaultyCard
from tests.placed_rig import Rig, assert_same, unplaced_job
from tests.stream_rig import StreamRig, adversary


@pytest.fixture(scope="module")
def expected():
    return unplaced_job()


def kinds(rig: Rig) -> list[RungKind]:
    return [rung.kind for rung in rig.rungs]


@pytest.mark.parametrize(("text", "size"), [
    ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB", 2 * GIB),
    ("CUDA out of memory. Tried to allocate 20.50 MiB (GPU 0; 8 GiB total)", int(20.5 * MIB)),
    ("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)", None),
])
def test_what_a_call_lacked_is_read_from_the_message(text, size):
    assert lacking_bytes(RuntimeError(text)) == size


def steps(rig: Rig) -> torch.Tensor:
    """Three calls of the UNet alone."""
    torch.manual_seed(3)
    x = torch.randn(1, 4, 8, 8)
    with torch.no_grad(), rig.guard.job():
        for time in (900, 500, 100):
            x = x - 0.1 * rig.unet.module(x, torch.tensor(time), torch.ones(1, 6, 8)).sample
    return x


def test_the_budget_falls_by_what_the_call_lacked_and_comes_back_after_the_job():
    rig = StreamRig()
    rig.model.set_weights_budget(2 * rig.unet_bytes)
    wanted = steps(rig)
    rig.card.reset_peak()
    steps(rig)
    peak, whole = rig.card.peak_bytes(), rig.streamed().needed_bytes
    small = SimulatedCard(peak - 10_000, adversary())
    rig = StreamRig(card=small, link=small.link)
    rig.model.set_weights_budget(whole)
    assert torch.equal(steps(rig), wanted)
    lowered = [rung.words for rung in rig.rungs if rung.kind is RungKind.LOWER_BUDGET]
    assert lowered
    assert "lowered what the UNet's weights take on the card from" in lowered[0]
    assert RungKind.SMALLER_PLACEMENT not in kinds(rig)
    assert rig.model.profile is Profile.STREAM
    assert rig.streamed()._lowered_bytes is None, "for the rest of the job, not for ever"
    assert small.peak_bytes() <= small.total_bytes
    rig.model.undo()
    rig.check_nothing_left()


def test_below_the_smallest_ring_comes_the_next_placement(expected):
    rig = StreamRig(budget_bytes=1)
    assert_same(rig.run_job(), expected)
    rig.model.undo()
    rig.guard.undo()
    again = StreamRig(budget_bytes=60_000)
    again.guard.undo()
    fault = CallFault(again.unet.module, "forward", 3, operation=20, times=4)
    again.guard.install()
    assert_same(again.run_job(), expected)
    with fault:
        assert_same(again.run_job(), expected)
    assert fault.left == 0
    found = kinds(again)
    assert found[0] is RungKind.RELEASE
    assert RungKind.LOWER_BUDGET in found
    assert found.index(RungKind.LOWER_BUDGET) < len(found)
    assert again.model.profile is Profile.STREAM, "settled after the job"


@pytest.mark.parametrize("number", [0, 1, 3, 7, 20, 33])
def test_a_copy_that_fails_in_the_middle_is_recovered(expected, number):
    rig = StreamRig(budget_bytes=30_000)
    assert_same(rig.run_job(), expected)
    rig.link.fail(number)
    assert_same(rig.run_job(), expected)
    assert RungKind.RELEASE in kinds(rig)
    rig.model.undo()
    rig.check_nothing_left()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_write_back_that_fails_loses_no_edit(failing):
    link = adversary()

    class Card(FaultyCard):
        def __init__(self):
            super().__init__(256 * MIB)
            self._link, self.no_link_because = link, None

        def fetch_into(self, tensor, target):
            self.fetches += 1
            self._raise_if(self.fetches - 1 in self._failing_fetches)
            super().fetch_into(tensor, target)

    rig, other = StreamRig(budget_bytes=1, card=Card(), link=link), Rig(guarded=False)
    rig.run_job()
    conv = rig.unet.module.down_blocks[0].resnets[0].conv1
    before = conv.weight.detach().clone()
    left = [1]

    def edit(module, args):
        if left:
            left.clear()
            with torch.no_grad():
                module.weight.mul_(1.5)

    handles = [conv.register_forward_pre_hook(edit)]
    rig.card.fail_fetch(failing)
    rig.run_job()
    handles[0].remove()
    with torch.no_grad():
        other.unet.module.down_blocks[0].resnets[0].conv1.weight.mul_(1.5)
    assert_same(rig.run_job(), other.job())
    rig.model.undo()
    assert torch.equal(conv.weight, before * 1.5)


def test_a_call_that_is_planned_alone_finds_no_other_weights_on_the_card():
    rig = StreamRig()
    rig.model.set_weights_budget(10 * rig.unet_bytes)
    rig.run_job()
    seen = []
    rig.vae.module.decoder.register_forward_pre_hook(lambda *_: seen.append(rig.streamed().card_bytes))
    rig.run_job()
    rig.model.plan_alone(rig.vae, "decode")
    with rig.guard.job():
        rig.job()
    assert seen[0] > 0
    assert seen[1] == 0
