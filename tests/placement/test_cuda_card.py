"""The real card behind the same interface."""

from __future__ import annotations

import gc

import pytest
import torch

from sd_webui_spillway.errors import BadInputError, UnavailableError
from sd_webui_spillway.placement.card import CudaCard
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.ladder import RungKind
from sd_webui_spillway.units import GIB, MIB
from tests.fakes.faults import CallFault
from tests.placed_rig import PLACEMENTS, Rig, assert_close, assert_same, weights


def job_of(rows=2, size=16):
    """A job with its results in system memory."""
    return lambda rig: {name: tensor.cpu() for name, tensor in rig.job(rows=rows, size=size).items()}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_cuda_it_says_why_it_is_unavailable():
    with pytest.raises(UnavailableError, match="A CUDA card is unavailable, because torch finds none"):
        CudaCard()


@pytest.mark.gpu
def test_put_fetch_and_what_they_move(card):
    before = card.used_bytes()
    source = torch.randn(4, 8, 16, 16).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        copy = card.put(source)
    assert card.holds(copy)
    assert not card.holds(source)
    assert not copy.is_inference()
    assert copy.stride() == source.stride()
    assert card.used_bytes() - before == source.nbytes
    again = card.put(copy)
    assert again.data_ptr() != copy.data_ptr()
    back = card.fetch(again)
    assert torch.equal(back, source)
    assert not card.holds(back)
    assert card.moved_bytes == 3 * source.nbytes
    del copy, again
    assert card.used_bytes() == before


@pytest.mark.gpu
def test_bring_moves_every_tensor_of_a_calls_arguments(card):
    (x,), kwargs = card.bring(((torch.ones(2),), {"more": [torch.ones(1)], "flag": True, "text": "t"}))
    assert card.holds(x)
    assert card.holds(kwargs["more"][0])
    assert kwargs["flag"] is True


@pytest.mark.gpu
def test_the_peak_and_its_reset(card):
    card.reset_peak()
    start = card.peak_bytes()
    x = torch.empty(32 * MIB, dtype=torch.uint8, device=card.device)
    assert card.peak_bytes() - start == 32 * MIB
    del x
    card.reset_peak()
    assert card.peak_bytes() <= start


@pytest.mark.gpu
def test_a_limit_holds_and_ends_with_close(card):
    limited = CudaCard(limit_bytes=card.used_bytes() + 512 * MIB)
    try:
        assert limited.limit_bytes < limited.total_bytes
        assert limited.free_bytes() <= 512 * MIB
        assert "limited to" in limited.label
        with pytest.raises(torch.cuda.OutOfMemoryError):
            limited.put(torch.empty(GIB, dtype=torch.uint8))
    finally:
        limited.close()
    torch.empty(GIB, dtype=torch.uint8, device=card.device)


@pytest.mark.gpu
def test_a_limit_above_the_card_is_refused(card):
    with pytest.raises(BadInputError, match="is more than the card's"):
        CudaCard(limit_bytes=card.total_bytes + 1)


@pytest.mark.gpu
def test_every_profile_gives_the_same_bytes_and_leaves_the_card_as_it_was(card):
    job = job_of()
    before = card.used_bytes()
    rig = Rig(card)
    rig.model.switch(Profile.DEDICATED)
    expected = job(rig)
    for profile in (*PLACEMENTS[1:], *PLACEMENTS[::-1]):
        rig.model.switch(profile)
        with rig.guard.job():
            assert_same(job(rig), expected)
        if profile is not Profile.DEDICATED:
            assert rig.on_card() == set()
    rig.model.undo()
    assert all(tensor.device.type == "cpu" for tensor in weights(rig.components))
    assert rig.rungs == []
    torch._C._cuda_clearCublasWorkspaces()
    gc.collect()
    assert card.used_bytes() - before <= MIB, "what cuBLAS keeps for itself apart"


@pytest.mark.gpu
@pytest.mark.parametrize("profile", PLACEMENTS)
def test_a_planned_fault_is_recovered_with_the_same_bytes(card, profile):
    job = job_of()
    rig = Rig(card, guarded=False)
    rig.model.switch(profile)
    fault = CallFault(rig.unet.module, "forward", 99)
    rig.guard.install()
    expected = job(rig)
    fault._at_call, fault.left, fault._operation = fault.done + 1, 1, 9
    with fault, rig.guard.job():
        assert_same(job(rig), expected)
    assert fault.left == 0


@pytest.mark.gpu
def test_a_real_out_of_memory_is_recovered(card):
    """The decode's activations do not fit under the limit; it is run in strips and the picture is the same."""
    rows, size = 4, 768
    whole = Rig(card)
    without_attention(whole)
    whole.model.switch(Profile.MEDVRAM)
    expected = job_of(rows, 64)(whole)
    latents = torch.randn(rows, 4, size // 2, size // 2)
    card.reset_peak()
    with torch.no_grad(), whole.guard.job():
        picture = whole.vae.module.decode(latents).sample.cpu()
    peak = card.peak_bytes()
    del whole
    gc.collect()
    torch.cuda.empty_cache()
    limited = CudaCard(limit_bytes=int(peak * 0.6))
    try:
        rig = Rig(limited)
        without_attention(rig)
        rig.model.switch(Profile.MEDVRAM)
        with torch.no_grad(), rig.guard.job():
            small = rig.vae.module.decode(latents).sample.cpu()
        assert RungKind.RELEASE in {rung.kind for rung in rig.rungs}
        assert RungKind.TILE in {rung.kind for rung in rig.rungs}
        assert (small - picture).abs().max() <= 2 / 255
        assert_close(job_of(rows, 64)(rig), expected)
        assert rig.model.profile is Profile.MEDVRAM
    finally:
        limited.close()


@pytest.mark.gpu
def test_the_simulated_peak_is_cudas_within_a_tenth(card):
    peaks = []
    for one in (card, SimulatedCard(8 * GIB)):
        rig = Rig(one, guarded=False)
        without_attention(rig)
        module = rig.vae.module.decoder
        inputs = torch.zeros(2, 4, 128, 128)
        outside = one.used_bytes()
        for tensor in module.parameters():
            tensor.data = one.put(tensor)
        brought = one.bring(inputs)
        with torch.no_grad():
            for _ in range(2):  # the first call makes what the libraries keep
                kept = one.used_bytes() - outside - _bytes(module, brought)
                one.reset_peak()
                with one.call_scope(brought):
                    module(brought)
        peaks.append(one.peak_bytes() - outside - (0 if one.simulated else kept))
        del module, brought, rig
    assert peaks[1] == pytest.approx(peaks[0], rel=0.1)


def without_attention(rig) -> None:
    """Its memory is its own kernel's choice, which differs between a CPU and a card."""
    for coder in (rig.vae.module.encoder, rig.vae.module.decoder):
        coder.mid_block.attentions[0] = torch.nn.Identity()


def _bytes(module, inputs) -> int:
    return sum(tensor.nbytes for tensor in (*module.parameters(), inputs))
