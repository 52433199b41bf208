"""How a component is cut into what moves on its own."""

from __future__ import annotations

import torch
from torch import nn

from sd_webui_spillway.placement.component import Component, ComponentKind, blocks, leaves, parts
from sd_webui_spillway.placement.placements import largest_unit_bytes
from sd_webui_spillway.placement.profile import Profile
from tests.placed_rig import components, make
from tests.torch_models import RootParameterUNet, TextEncoder, UNet, Vae


def test_lowvram_moves_each_resnet_transformer_and_sampler_and_what_is_outside_blocks():
    assert [name for name, _ in blocks(make(UNet))] == [
        "conv_in", "time_embedding",
        "down_blocks.0.resnets.0", "down_blocks.0.resnets.1", "down_blocks.0.attentions.0",
        "down_blocks.0.attentions.1", "down_blocks.0.samplers.0",
        "mid_block.resnets.0", "mid_block.attentions.0",
        "up_blocks.0.resnets.0", "up_blocks.0.attentions.0", "up_blocks.0.samplers.0",
        "conv_norm_out", "conv_act", "conv_out",
    ]


def test_a_block_with_a_parameter_of_its_own_moves_whole():
    unet = make(UNet)
    unet.mid_block.scale = nn.Parameter(torch.ones(1))
    names = [name for name, _ in blocks(unet)]
    assert "mid_block" in names
    assert not any(name.startswith("mid_block.") for name in names)


def test_leaves_are_what_is_called_and_multihead_attention_is_one():
    layer = [f"layers.{index}.{name}" for index in (0, 1) for name in ("norm", "attention", "linear")]
    assert [name for name, _ in leaves(make(TextEncoder))] == ["embeddings", *layer, "final_norm"]


def test_a_model_that_owns_weights_beside_its_layers_is_no_leaf():
    """OpenCLIP's is never called itself: its caller uses its layers and its positions."""
    outer = nn.Module()
    outer.model = make(RootParameterUNet)
    names = [name for name, _ in leaves(outer)]
    assert names == [f"model.{name}" for name, _ in leaves(make(UNet))]


def test_leaves_hold_every_weight_once():
    for module in (make(UNet), make(Vae)):
        held = [id(p) for _, leaf in leaves(module) for p in leaf.parameters()]
        assert sorted(held) == sorted(id(p) for p in module.parameters())


def test_blocks_and_what_is_beside_them_hold_every_weight_once():
    unet = make(RootParameterUNet)
    held = [id(p) for _, block in blocks(unet) for p in block.parameters()]
    assert sorted([*held, id(unet.gain)]) == sorted(id(p) for p in unet.parameters())


def test_parts_are_the_children_a_call_needs():
    vae = components()[2]
    assert parts(vae) == {
        "encode": (vae.module.encoder, vae.module.quant_conv),
        "decode": (vae.module.decoder, vae.module.post_quant_conv),
    }
    whole = Component("unet", ComponentKind.UNET, vae.module, {"forward": ()})
    assert parts(whole) == {"forward": (vae.module,)}


def test_largest_unit_counts_what_stays_beside_it():
    part = Component("unet", ComponentKind.UNET, make(RootParameterUNet), {"forward": ()})
    largest = max(sum(p.nbytes for p in block.parameters()) for _, block in blocks(part.module))
    assert largest_unit_bytes(Profile.LOWVRAM, [part]) == {"unet": largest + part.module.gain.nbytes}
    assert largest_unit_bytes(Profile.MEDVRAM, [part]) == {}
    layer = max(sum(p.nbytes for p in leaf.parameters()) for _, leaf in leaves(part.module))
    assert largest_unit_bytes(Profile.SEQUENTIAL, [part]) == {"unet": layer + part.module.gain.nbytes}


def test_a_conditioning_model_is_never_cut():
    """MiDaS has its transformer run by a function of its own, which calls neither it nor a hook on it."""
    part = Component("depth_model", ComponentKind.OTHER, make(UNet), {"forward": ()})
    assert largest_unit_bytes(Profile.SEQUENTIAL, [part]) == {}
