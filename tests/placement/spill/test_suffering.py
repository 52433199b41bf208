"""What spills first: the rule agrees with the layers that were measured, and with what each is used for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sd_webui_spillway.placement.component import Component, ComponentKind
from sd_webui_spillway.placement.spill import SpillOptions, cut_up, least_on_card
from sd_webui_spillway.placement.spill.suffering import Reading, reading_of, suffering
from sd_webui_spillway.units import KIB, MIB

UNET, TEXT, VAE = ComponentKind.UNET, ComponentKind.TEXT_ENCODER, ComponentKind.VAE
LINK = 55e9


@pytest.mark.parametrize(("reading", "rows", "weight_bytes", "in_place_ms", "dedicated_ms"), [
    (Reading.MULTIPLIED, 8192, 1280 * 1280 * 2, 2.23, 0.057),
    (Reading.MULTIPLIED, 2048, 1280 * 10240 * 2, 4.16, 0.101),
    (Reading.MULTIPLIED, 154, 2048 * 1280 * 2, 0.35, 0.042),
    (Reading.CONVOLVED, None, 320 * 320 * 9 * 2, 0.219, 0.168),
    (Reading.CONVOLVED, None, 1280 * 1280 * 9 * 2, 1.09, 0.195),
])
def test_the_rule_is_within_a_tenth_of_each_measured_layer(reading, rows, weight_bytes, in_place_ms, dedicated_ms):
    crossings = (in_place_ms - dedicated_ms) / 1000 / (weight_bytes / LINK)
    assert suffering(reading, TEXT, rows) == pytest.approx(crossings, rel=0.1)


def test_what_is_used_once_an_image_spills_before_what_is_used_at_every_step():
    once = [suffering(reading, kind, 154) for reading in Reading for kind in (TEXT, VAE)]
    steps = [suffering(reading, UNET, None) for reading in (Reading.CONVOLVED, Reading.MULTIPLIED)]
    assert max(once) < min(steps)


def test_in_a_unet_convolutions_come_first_then_text_attention_then_large_products():
    order = [
        suffering(Reading.LOOKED_UP, UNET, None), suffering(Reading.CONVOLVED, UNET, None),
        suffering(Reading.MULTIPLIED, UNET, 154), suffering(Reading.MULTIPLIED, UNET, 2048),
        suffering(Reading.MULTIPLIED, UNET, 8192),
    ]
    assert order == sorted(order)
    assert len(set(order)) == len(order)


@pytest.mark.parametrize(("module", "reading"), [
    (nn.Embedding(4, 4), Reading.LOOKED_UP), (nn.Conv2d(4, 4, 3), Reading.CONVOLVED), (nn.Conv3d(2, 2, 2),
     Reading.CONVOLVED), (nn.Conv2d(4, 4, 1), Reading.MULTIPLIED), (nn.Linear(4, 4), Reading.MULTIPLIED),
])
def test_a_layer_reads_its_weight_as_what_it_is(module, reading):
    assert reading_of(module, module.weight) is reading


class Mixed(nn.Module):
    """Layers of every kind, a tied pair, and two weights that share bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 32)
        self.conv = nn.Conv2d(16, 16, 3)
        self.wide, self.narrow = nn.Linear(64, 32), nn.Linear(32, 64)
        self.norm = nn.GroupNorm(4, 16)
        self.head = nn.Linear(32, 64, bias=False)
        self.head.weight = self.embedding.weight
        whole = torch.randn(64, 64)
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 32)
        self.first.weight, self.second.weight = nn.Parameter(whole), nn.Parameter(whole[:32])


def test_a_cut_has_every_weight_once_and_keeps_the_kinds_apart():
    module = Mixed()
    cut = cut_up([Component("unet", UNET, module, {"forward": ()})], SpillOptions(8 * KIB, 4 * KIB))
    spilled = [id(tensor) for _, tensors in cut.pieces for tensor in tensors]
    held = [id(tensor) for tensor in cut.held]
    assert sorted(spilled + held) == sorted(id(p) for p in module.parameters())
    assert {id(module.first.weight), id(module.second.weight)} <= set(held), "they share bytes"
    assert {(group.reading, group.width) for group, _ in cut.pieces} == {
        (Reading.LOOKED_UP, 0), (Reading.CONVOLVED, 0), (Reading.MULTIPLIED, 64), (Reading.MULTIPLIED, 32),
    }
    assert [module for module, _ in cut.multiplied["unet"]] == [module.wide, module.narrow]


def test_the_least_on_the_card_is_what_cannot_spill_or_is_past_the_cap():
    cut = cut_up([Component("unet", UNET, nn.Linear(512, 512), {"forward": ()})], SpillOptions())
    assert (cut.held_bytes, cut.spillable_bytes) == (2 * KIB, MIB)
    assert least_on_card(cut, 2 * MIB) == 2 * KIB
    assert least_on_card(cut, 256 * KIB) == 2 * KIB + 768 * KIB
