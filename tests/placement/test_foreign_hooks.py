"""A module that another library already places is refused, by name."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.placement.component import refuse_foreign_hooks
from sd_webui_spillway.placement.profile import Profile
from tests.placed_rig import PLACEMENTS, Rig


@pytest.fixture
def accelerate():
    return pytest.importorskip("accelerate", reason="needs accelerate")


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_accelerate_offload_is_refused(accelerate, profile):
    rig = Rig(guarded=False)
    accelerate.cpu_offload(rig.vae.module.decoder, execution_device=torch.device("cpu"))
    with pytest.raises(UnavailableError) as caught:
        rig.model.switch(profile)
    assert str(caught.value) == (
        "The VAE (vae.decoder) is already placed by accelerate; remove that first, two placements on one module "
        "lose weights."
    )
    assert rig.model.profile is None
    assert rig.on_card() == set()
    accelerate.hooks.remove_hook_from_module(rig.vae.module.decoder, recurse=True)
    rig.model.switch(profile)


def test_one_hook_deep_inside_is_found(accelerate):
    rig = Rig(guarded=False)
    leaf = rig.unet.module.mid_block.attentions[0].text_attention
    accelerate.hooks.add_hook_to_module(leaf, accelerate.hooks.AlignDevicesHook())
    with pytest.raises(UnavailableError, match=r"The UNet \(unet\.mid_block\.attentions\.0\.text_attention\)"):
        refuse_foreign_hooks(rig.unet)


def test_a_refused_switch_leaves_the_placement_in_force(accelerate):
    rig = Rig(guarded=False)
    rig.model.switch(Profile.MEDVRAM)
    accelerate.hooks.add_hook_to_module(rig.text.module, accelerate.hooks.ModelHook())
    with pytest.raises(UnavailableError, match=r"The text encoder \(text_encoder\)"):
        rig.model.switch(Profile.LOWVRAM)
    assert rig.model.profile is Profile.MEDVRAM


def test_diffusers_group_offload_is_refused():
    if importlib.util.find_spec("diffusers") is None or importlib.util.find_spec("diffusers.hooks") is None:
        pytest.skip("needs diffusers 0.33 or newer, which has group offload")
    from diffusers.hooks import apply_group_offloading

    rig = Rig(guarded=False)
    apply_group_offloading(
        rig.unet.module, onload_device=torch.device("cpu"), offload_device=torch.device("cpu"),
        offload_type="leaf_level",
    )
    with pytest.raises(UnavailableError, match=r"The UNet \(unet.*\) is already placed by diffusers group offload"):
        rig.model.switch(Profile.SEQUENTIAL)


def test_other_hooks_are_nobodys_business():
    rig = Rig(guarded=False)
    rig.unet.module.register_forward_hook(lambda module, args, output: None)
    nn.utils.parametrizations.weight_norm(rig.text.module.layers[0].linear)
    for component in rig.components:
        refuse_foreign_hooks(component)
