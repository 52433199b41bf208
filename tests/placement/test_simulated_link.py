"""The twin catches every wait that could be forgotten: each link here forgets one, and a job must not get through."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.placement.simulated_link import POISON, RaceError, SimulatedLink
from sd_webui_spillway.units import MIB
from tests.stream_rig import StreamRig, adversary


class ComputeDoesNotWait(SimulatedLink):
    def compute_waits(self, mark):
        pass


class CopiesDoNotWait(SimulatedLink):
    def upload(self, source, target, after, begun, done):
        super().upload(source, target, self.mark(), begun, done)


class UseIsNotMarked(SimulatedLink):
    marked = 0

    def set_in_compute(self, mark):
        self.marked += 1
        if self.marked < 40:
            super().set_in_compute(mark)


class HostDoesNotDrain(SimulatedLink):
    def drain(self):
        pass


@pytest.mark.parametrize("eager", [0.0, 1.0])
@pytest.mark.parametrize("forgetful", [ComputeDoesNotWait, CopiesDoNotWait, UseIsNotMarked])
def test_a_job_with_a_wait_forgotten_is_a_race(forgetful, eager):
    rig = StreamRig(budget_bytes=1, link=forgetful(eager))
    with pytest.raises(RaceError):
        rig.run_job()


def test_unpinning_under_a_queued_copy_is_a_race():
    rig = StreamRig(budget_bytes=1, link=HostDoesNotDrain())
    rig.run_job()
    with torch.no_grad(), rig.guard.job():
        rig.unet.module(torch.zeros(1, 4, 4, 4), torch.tensor(1), torch.zeros(1, 6, 8))
        queued = rig.link._queue[0].source.data_ptr()
        chunk = next(one for one in rig.streamed()._composition.chunks if one.host.bytes.data_ptr() == queued)
        with pytest.raises(RaceError, match="unpinned with a copy of it queued"):
            chunk.host.unpin()


@pytest.fixture
def parts():
    link = adversary()
    card = SimulatedCard(MIB, link)
    source = torch.arange(8, dtype=torch.uint8)
    link.pin(source)
    slab = card.slab(8)
    free, begun, done = link.mark(), link.mark(), link.mark()
    link.set_in_compute(free)
    return link, card, source, slab, free, begun, done


def test_a_copy_lands_when_it_is_waited_for_and_not_before(parts):
    link, _, source, slab, free, begun, done = parts
    link.upload(source, slab, free, begun, done)
    assert slab.tolist() == [POISON] * 8
    link.compute_waits(done)
    assert torch.equal(slab, source)
    assert link.seconds_between(begun, done) == pytest.approx(8e-9)


def test_an_unset_mark_is_nothing_to_wait_for(parts):
    link, _, source, slab, free, begun, done = parts
    link.upload(source, slab, free, begun, done)
    link.compute_waits(link.mark())
    assert slab.tolist() == [POISON] * 8


def test_an_operation_before_the_copy_is_waited_for_is_a_race(parts):
    link, card, source, slab, free, begun, done = parts
    link.eager = 1.0
    link.upload(source, slab, free, begun, done)
    assert torch.equal(slab, source), "it has landed, by luck"
    with pytest.raises(RaceError, match="was not waited for"), card.call_scope(()):
        slab.sum()


def test_giving_back_a_slab_while_a_copy_may_be_under_way_is_a_race(parts):
    link, card, source, _, free, begun, done = parts
    link.eager = 1.0
    slab = card.slab(8)
    link.set_in_compute(free)
    link.upload(source, slab, free, begun, done)
    del slab
    with pytest.raises(RaceError, match="given back"):
        card.slab(8)


def test_what_is_not_pinned_is_copied_while_the_host_waits(parts):
    link, _, source, slab, free, begun, done = parts
    link.unpin(source)
    link.upload(source, slab, free, begun, done)
    assert torch.equal(slab, source)


def test_a_slab_counts_on_the_card_and_an_exhausted_card_gives_none():
    card = SimulatedCard(100, adversary())
    slab = card.slab(60)
    assert card.used_bytes() == 60
    assert slab.view(torch.float32).isnan().all()
    with pytest.raises(torch.cuda.OutOfMemoryError):
        card.slab(41)
    del slab
    card.slab(100)
