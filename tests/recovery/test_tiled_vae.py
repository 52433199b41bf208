"""A VAE in strips: the whole picture's result, in less memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.tiled_vae import tiled_forward
from sd_webui_spillway.recovery.vae_layers import cannot_tile_because
from sd_webui_spillway.units import KIB, MIB
from tests.original_coders import OriginalDecoder, OriginalEncoder
from tests.placed_rig import NarrowCard, make
from tests.torch_models import Attention, Decoder, Encoder, TextEncoder, UNet, Vae

SIZES = [(8, 8), (9, 7), (16, 16), (17, 12), (23, 31), (40, 8), (64, 33), (1, 1), (2, 3), (3, 90)]


CODERS = {
    "encode": (Encoder, 3), "decode": (Decoder, 4), "original encode": (OriginalEncoder, 3),
    "original decode": (OriginalDecoder, 4),
}


def coder(kind):
    module, channels = CODERS[kind]
    return make(module), channels


@pytest.mark.parametrize("card", [SimulatedCard(512 * MIB), SimulatedCard(2 * MIB), NarrowCard(512 * MIB)],
                         ids=["roomy", "small", "narrow"])
@pytest.mark.parametrize("kind", CODERS)
@pytest.mark.parametrize("samples", [1, 2])
@torch.no_grad()
def test_strips_equal_the_whole(card, kind, samples):
    module, channels = coder(kind)
    torch.manual_seed(0)
    for height, width in SIZES:
        if kind.endswith("encode") and min(height, width) < 2:
            continue
        x = torch.randn(samples, channels, height, width)
        whole = module(x)
        with tiled_forward(module, card):
            strips = module(x)
        assert strips.shape == whole.shape, (height, width)
        assert (strips - whole).abs().max() <= 1e-4, (height, width)
    assert "forward" not in vars(module)


@pytest.mark.parametrize("kind", CODERS)
@torch.no_grad()
def test_a_bright_picture_keeps_its_statistics(kind):
    """A large mean makes the difference of squares lose digits; the sums are kept in float64."""
    module, channels = coder(kind)
    torch.manual_seed(0)
    x = torch.randn(1, channels, 40, 24) * 0.05 + 30
    whole = module(x)
    with tiled_forward(module, NarrowCard(64 * MIB)):
        assert (module(x) - whole).abs().max() <= 1e-3


@pytest.mark.parametrize("kind", CODERS)
@torch.no_grad()
def test_the_peak_is_lower_than_the_wholes(kind):
    module, channels = coder(kind)
    x = torch.randn(1, channels, 256, 64) if kind.endswith("encode") else torch.randn(1, channels, 128, 32)
    peaks = []
    for limit, tiled in ((512 * MIB, False), (2 * MIB, True)):
        card = SimulatedCard(limit)
        for parameter in module.parameters():
            parameter.data = card.put(parameter)
        with card.call_scope(x):
            if tiled:
                with tiled_forward(module, card):
                    strips = module(x)
            else:
                whole = module(x)
        peaks.append(card.peak_bytes())
    assert (strips - whole).abs().max() <= 1e-4
    assert peaks[1] <= 2 * MIB < peaks[0]


@torch.no_grad()
def test_a_failing_strip_leaves_the_module_as_it_was():
    module = make(Decoder)
    card = SimulatedCard(30 * KIB)
    with pytest.raises(torch.cuda.OutOfMemoryError), tiled_forward(module, card), card.call_scope(()):
        module(torch.randn(1, 4, 64, 64))
    assert "forward" not in vars(module)
    assert card.used_bytes() == 0


@torch.no_grad()
def test_the_sample_may_be_named_and_further_arguments_are_ignored():
    module, x = make(Decoder), torch.randn(1, 4, 12, 12)
    whole = module(x)
    with tiled_forward(module, SimulatedCard(MIB)):
        assert (module(sample=x) - whole).abs().max() <= 1e-4


@torch.no_grad()
def test_half_precision_stays_half():
    module, x = make(Decoder).bfloat16(), torch.randn(1, 4, 12, 12).bfloat16()
    whole = module(x)
    with tiled_forward(module, NarrowCard(MIB)):
        strips = module(x)
    assert strips.dtype is torch.bfloat16
    assert (strips.float() - whole.float()).abs().max() <= 0.05 * whole.float().abs().max()


def test_it_says_why_a_module_cannot_run_in_strips():
    assert cannot_tile_because(make(Decoder)) is None
    assert cannot_tile_because(make(Encoder)) is None
    assert cannot_tile_because(make(TextEncoder)) == "the structure of TextEncoder is not known"
    assert cannot_tile_because(make(Vae)) == "the structure of Vae is not known"
    assert cannot_tile_because(make(OriginalDecoder)) is None
    assert cannot_tile_because(make(OriginalEncoder)) is None
    original = make(OriginalDecoder)
    original.up[0].attn.append(Attention(8))
    assert cannot_tile_because(original) == "it has attention outside its middle block"
    attentive = make(Decoder)
    attentive.up_blocks[0].attentions = nn.ModuleList([Attention(8)])
    assert cannot_tile_because(attentive) == "it has attention outside its middle block"
    otherwise = make(Encoder)
    otherwise.down_blocks[0].resnets[0].norm1 = nn.BatchNorm2d(8)
    assert cannot_tile_because(otherwise) == "it normalises by something other than group norm"
    assert cannot_tile_because(make(UNet)) == "it has attention outside its middle block"
