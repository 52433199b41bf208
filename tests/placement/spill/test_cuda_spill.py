"""Reading in place on a real GPU: the same bytes, the memory counted where it is, nothing left behind."""

from __future__ import annotations

import gc
import mmap

import pytest
import torch

from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.placement.component import Component, ComponentKind
from sd_webui_spillway.placement.placed_model import PlacedModel
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.spill import SpillOptions
from sd_webui_spillway.placement.stream.host_slab import HostSlab
from sd_webui_spillway.units import GIB, MIB
from tests.placed_rig import Rig, assert_same
from tests.placement.stream.test_cuda_stream import Deep, call
from tests.spill_rig import SMALL_PIECES

pytestmark = pytest.mark.gpu


def placed(card, module, budget, cap=4 * GIB):
    ledger = SharedLedger(cap)
    component = Component("unet", ComponentKind.UNET, module, {"forward": ()})
    model = PlacedModel([component], card, ledger, spill_options=SpillOptions(piece_bytes=16 * MIB))
    model.set_weights_budget(budget)
    model.switch(Profile.SPILL)
    return model, component, ledger


def in_system_memory(tensors):
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def test_a_mapped_slab_is_the_same_memory_and_takes_none_of_the_card(card):
    ledger = SharedLedger(GIB)
    slab = HostSlab(5 * MIB + 3, card.link, ledger)
    slab.bytes.random_(0, 255)
    before = card.used_bytes()
    assert slab.pin()
    seen = card.link.mapped(slab.bytes)
    assert seen.device.type == "cuda"
    assert not card.holds(seen)
    assert card.link.maps(seen[17:].view(torch.uint8))
    assert card.used_bytes() == before
    assert torch.equal(seen.clone().cpu(), slab.bytes)
    seen[1000:2000].fill_(7)  # as an edit of a LoRA does
    card.synchronize()
    assert set(slab.bytes[1000:2000].tolist()) == {7}
    slab.bytes[5] = 9
    assert seen[5].item() == 9
    del seen
    slab.unpin()
    assert ledger.pinned_bytes == 0
    assert torch.ones(10, device=card.device).sum() == 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_layers_compute_the_same_bytes_from_mapped_memory(card, dtype):
    torch.manual_seed(0)
    layers = (
        (torch.nn.Linear(640, 1280, dtype=dtype), torch.randn(2048, 640, dtype=dtype)),
        (torch.nn.Conv2d(64, 128, 3, padding=1, dtype=dtype), torch.randn(2, 64, 64, 64, dtype=dtype)),
        (torch.nn.Embedding(1000, 256, dtype=dtype), torch.arange(77)),
    )
    for layer, x in layers:
        x = x.to(card.device)
        weight = layer.weight.detach()
        layer.to(card.device)
        expected = layer(x).cpu()
        slab = HostSlab(weight.nbytes, card.link, SharedLedger(GIB))
        slab.view(0, weight).copy_(weight)
        assert slab.pin()
        layer.weight.data = card.link.mapped(slab.bytes).view(dtype).view(weight.shape)
        assert torch.equal(layer(x).cpu(), expected), layer
        card.synchronize()
        layer.weight.data = weight.cpu()
        slab.unpin()


@pytest.mark.parametrize("share", [0, 0.3, 0.7, 2])
def test_a_deep_model_spills_with_the_same_bytes_in_its_budget(card, share):
    torch.manual_seed(0)
    module = Deep(24, 2048)
    total = sum(parameter.nbytes for parameter in module.parameters())
    x = torch.randn(64, 2048, dtype=torch.float16, device=card.device)
    expected = module.to(card.device)(x).detach()
    module.to("cpu")
    gc.collect()
    torch.cuda.empty_cache()
    outside = card.used_bytes()
    model, component, ledger = placed(card, module, int(share * total))
    for _ in range(2):
        assert torch.equal(call(model, component, x), expected)
    card.reset_peak()
    for _ in range(3):
        result = call(model, component, x)
    assert torch.equal(result, expected)
    on_card = model._spilling.card_bytes
    assert on_card <= max(share * total, MIB)
    assert card.peak_bytes() - outside <= on_card + 8 * MIB
    assert model.resident_bytes() <= on_card + MIB
    spilled = [piece.chunk.nbytes for piece in model._spilling._pieces if piece.chunk.mapped is not None]
    assert ledger.pinned_bytes == sum(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE for size in spilled)
    assert (share < 1) == bool(spilled)
    model.undo()
    del result
    gc.collect()
    assert ledger.pinned_bytes == 0
    assert card.used_bytes() - outside <= MIB
    assert all(parameter.device.type == "cpu" and not parameter.is_pinned() for parameter in module.parameters())


def test_an_edit_on_the_card_is_the_masters_and_survives_the_undo(card):
    module = Deep(4, 1024)
    model, _, _ = placed(card, module, 1)
    weight = module.layers[2].weight
    before = weight.detach().cpu()
    with torch.no_grad():
        weight += torch.ones_like(weight)
    model.set_weights_budget(GIB)
    model.switch(Profile.DEDICATED)
    assert torch.equal(weight.detach().cpu(), before + 1)
    model.undo()
    assert torch.equal(weight.detach(), before + 1)


def test_the_whole_small_model_spills_with_the_same_bytes(card):
    rig = Rig(card)
    rig.model.switch(Profile.DEDICATED)
    expected = in_system_memory(rig.job())
    rig.model._spilling._options = SMALL_PIECES
    for budget in (1, 100_000, 10**9, 1):
        rig.model.set_weights_budget(budget)
        rig.model.switch(Profile.SPILL)
        for _ in range(2):
            assert_same(in_system_memory(rig.run_job()), expected)
        rig.model.switch(Profile.STREAM)
        assert_same(in_system_memory(rig.run_job()), expected)
    assert rig.rungs == []
    rig.model.undo()
    assert rig.model.ledger.pinned_bytes == 0
