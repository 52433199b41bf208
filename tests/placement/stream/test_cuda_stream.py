"""The ring on a real GPU: exact pinning, true asynchrony, the same bytes."""

from __future__ import annotations

import gc
import mmap

import pytest
import torch
from torch import nn

from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.placement.card import CudaCard
from sd_webui_spillway.placement.component import Component, ComponentKind
from sd_webui_spillway.placement.placed_model import PlacedModel
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.stream import StreamOptions
from sd_webui_spillway.placement.stream.host_slab import HostSlab
from sd_webui_spillway.units import GIB, MIB
from tests.placed_rig import Rig, assert_same

pytestmark = pytest.mark.gpu


class Deep(nn.Module):
    """``depth`` linear layers of ``width``, in half precision."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, dtype=torch.float16) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def placed(card: CudaCard, module: nn.Module, budget: int, **options) -> tuple[PlacedModel, Component, SharedLedger]:
    ledger = SharedLedger(4 * GIB)
    component = Component("unet", ComponentKind.UNET, module, {"forward": ()})
    model = PlacedModel([component], card, ledger, StreamOptions(**options))
    model.set_weights_budget(budget)
    model.switch(Profile.STREAM)
    return model, component, ledger


@torch.no_grad()
def call(model: PlacedModel, component: Component, x: torch.Tensor) -> torch.Tensor:
    with model.component_call(component, "forward"):
        return component.module(x)


def test_pinning_takes_exactly_its_pages_and_can_be_undone(card):
    ledger = SharedLedger(GIB)
    slab = HostSlab(33 * MIB + 5, card.link, ledger)
    slab.bytes.fill_(7)
    assert slab.pin()
    assert slab.bytes.is_pinned()
    assert ledger.pinned_bytes == 33 * MIB + mmap.PAGESIZE
    view = slab.view(512, torch.empty(4, 4, dtype=torch.float16))
    assert view.is_pinned()
    slab.unpin()
    assert not slab.bytes.is_pinned()
    assert ledger.pinned_bytes == 0
    slab.pin()
    del slab
    gc.collect()
    assert ledger.pinned_bytes == 0
    assert view.view(torch.uint8)[0, 0] == 7, "the memory lives on with its last tensor"


def test_a_refused_pin_leaves_no_error_behind(card):
    slab = HostSlab(MIB, card.link, SharedLedger(GIB))
    assert slab.pin()
    assert not card.link.pin(slab.bytes), "pinned twice"
    assert torch.ones(10, device=card.device).sum() == 10


def test_a_copy_runs_beside_the_computation(card):
    link = card.link
    slab = HostSlab(256 * MIB, link, SharedLedger(GIB))
    assert slab.pin()
    target = card.slab(256 * MIB)
    busy = torch.randn(8192, 8192, device=card.device)
    free, begun, done = link.mark(), link.mark(), link.mark()
    first, last = link.mark(), link.mark()
    for _ in range(2):
        link.drain()
        link.set_in_compute(free)
        link.set_in_compute(first)
        link.upload(slab.bytes, target, free, begun, done)
        for _ in range(4):
            busy @ busy
        link.set_in_compute(last)
    link.compute_waits(done)
    link.drain()
    copying, computing = link.seconds_between(begun, done), link.seconds_between(first, last)
    assert link.seconds_between(first, done) < 0.9 * (copying + computing)
    assert torch.equal(target.cpu(), slab.bytes)


@pytest.mark.parametrize("share", [0, 0.3, 0.7, 2])
def test_a_deep_model_streams_with_the_same_bytes_in_its_budget(card, share):
    torch.manual_seed(0)
    module = Deep(48, 2048)
    total = sum(parameter.nbytes for parameter in module.parameters())
    x = torch.randn(64, 2048, dtype=torch.float16, device=card.device)
    expected = module.to(card.device)(x).detach()
    module.to("cpu")
    gc.collect()
    torch.cuda.empty_cache()
    outside = card.used_bytes()
    model, component, ledger = placed(card, module, int(share * total), chunk_bytes=32 * MIB)
    for _ in range(4):
        assert torch.equal(call(model, component, x), expected)
    card.reset_peak()
    for _ in range(6):
        result = call(model, component, x)
    assert torch.equal(result, expected)
    needed = model._streaming._streamed["unet"].needed_bytes
    assert needed <= max(int(share * total), 3 * 33 * MIB)
    assert card.peak_bytes() - outside <= needed + 8 * MIB
    model.undo()
    del result
    gc.collect()
    assert ledger.pinned_bytes == 0
    assert card.used_bytes() - outside <= MIB
    assert all(parameter.device.type == "cpu" and not parameter.is_pinned() for parameter in module.parameters())


def test_the_whole_small_model_streams_with_the_same_bytes(card):
    rig = Rig(card)
    rig.model.switch(Profile.DEDICATED)
    expected = {name: tensor.cpu() for name, tensor in rig.job().items()}
    rig.model._streaming._options = StreamOptions(chunk_bytes=8192)
    for budget in (1, 40_000, 10**9, 1):
        rig.model.set_weights_budget(budget)
        rig.model.switch(Profile.STREAM)
        for _ in range(3):
            assert_same({name: tensor.cpu() for name, tensor in rig.run_job().items()}, expected)
    assert rig.rungs == []
    rig.model.undo()
    assert rig.model.ledger.pinned_bytes == 0


def test_the_predicted_step_is_near_the_measured_one(card):
    module = Deep(64, 4096)
    x = torch.randn(4096, 4096, dtype=torch.float16, device=card.device)
    model, component, _ = placed(card, module, 1)
    for _ in range(4):
        call(model, component, x)
    link, begun, done = card.link, card.link.mark(), card.link.mark()
    link.set_in_compute(begun)
    for _ in range(5):
        call(model, component, x)
    link.set_in_compute(done)
    measured = link.seconds_between(begun, done) / 5
    assert model._streaming.predicted_step_seconds(component) == pytest.approx(measured, rel=0.25)
    model.undo()
