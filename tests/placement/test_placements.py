"""Every profile gives the same bytes, and holds on the card exactly what it promises at each call."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.placement.component import blocks, leaves, parts
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from tests.placed_rig import PLACEMENTS, Rig, assert_same, unplaced_job, weights
from tests.torch_models import RootParameterUNet, TiedEncoder, UNet

UNETS = (UNet, RootParameterUNet)


@pytest.fixture(scope="module", params=UNETS)
def reference(request):
    return request.param, unplaced_job(unet=request.param)


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_the_same_bytes_come_out(profile, reference):
    unet, expected = reference
    rig = Rig(unet=unet, guarded=False)
    rig.model.switch(profile)
    with torch.no_grad():
        assert_same(_through_placement(rig), expected)


def _through_placement(rig: Rig):
    """The job without a guard's retries: only the placement around each call."""
    for component in rig.components:
        for call in component.calls:
            _wrap(rig, component, call)
    return rig.job()


def _wrap(rig: Rig, component, call):
    original = getattr(component.module, call)

    def placed(*args, **kwargs):
        with rig.model.component_call(component, call), rig.card.call_scope((args, kwargs)):
            return original(*args, **kwargs)

    setattr(component.module, call, placed)


def _ids(*modules):
    return {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}


def _promised(rig: Rig, profile: Profile):
    """By leaf: the weights that may be on the card while it runs. A leaf belongs to one call only."""
    everything = {id(tensor) for tensor in weights(rig.components)}
    promised = {}
    for component in rig.components:
        beside = {id(p) for p in component.module._parameters.values()}
        for modules in parts(component).values():
            for leaf in [leaf for module in modules for leaf in _layers(module)]:
                if profile is Profile.DEDICATED:
                    promised[leaf] = everything
                elif profile is Profile.SEQUENTIAL:
                    promised[leaf] = _ids(leaf) | beside
                else:
                    promised[leaf] = _ids(*modules)
        if profile is Profile.LOWVRAM and component is rig.unet:
            for _, block in blocks(component.module):
                promised.update({leaf: _ids(block) | beside for _, leaf in leaves(block)})
    return promised


def _layers(module):
    """The leaves below a module, and not the module itself where its root owns a parameter."""
    found = [leaf for _, leaf in leaves(module)]
    return [leaf for child in module.children() for _, leaf in leaves(child)] if found == [module] and list(
        module.children()) else found


@pytest.mark.parametrize(("unet", "profile"), [*((UNet, p) for p in PLACEMENTS), (RootParameterUNet, Profile.LOWVRAM)])
def test_exactly_the_promised_bytes_are_on_the_card_at_each_call(unet, profile):
    rig = Rig(unet=unet)
    tensors = weights(rig.components)
    sizes = {id(tensor): tensor.nbytes for tensor in tensors}
    rig.model.switch(profile)
    promised = _promised(rig, profile)
    calls = []

    def look(leaf, args):
        on_card = {id(tensor) for tensor in tensors if rig.card.holds(tensor)}
        assert on_card == promised[leaf], type(leaf).__name__
        bytes_on_card = sum(sizes[tensor] for tensor in on_card)
        assert rig.card.used_bytes() - rig.card._activations.sweep() == bytes_on_card
        if len(calls) < 3:
            assert rig.model.resident_bytes() == bytes_on_card
        calls.append(leaf)

    for leaf in promised:
        leaf.register_forward_pre_hook(look)
    rig.run_job()
    assert len(calls) > 100
    assert set(calls) == set(promised), "every layer was looked at"
    left = sum(sizes.values()) if profile is Profile.DEDICATED else 0
    assert rig.model.resident_bytes() == rig.card.used_bytes() == left, "between jobs"


def test_a_smaller_profile_peaks_lower():
    peaks = []
    for profile in PLACEMENTS:
        rig = Rig()
        rig.model.switch(profile)
        rig.card.reset_peak()
        with torch.no_grad():
            rig.unet.module(torch.zeros(1, 4, 4, 4), torch.tensor(1), torch.zeros(1, 6, 8))
        peaks.append(rig.card.peak_bytes())
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)


def test_medvram_keeps_a_component_between_its_own_calls():
    rig = Rig()
    rig.model.switch(Profile.MEDVRAM)
    rig.run_job()
    total = sum(tensor.nbytes for tensor in weights(rig.components))
    assert rig.card.moved_bytes == total, "three UNet steps, one copy of each weight"


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_tied_weights_and_shared_buffers_stay_tied(profile):
    rig = Rig(guarded=False)
    tied = TiedEncoder().eval()
    object.__setattr__(rig.text, "module", tied)
    with torch.no_grad():
        expected = tied(torch.arange(6)[None])
    rig.model.switch(profile)
    for _ in range(2):
        ids = torch.arange(6)[None]
        with rig.model.component_call(rig.text, "forward"), torch.no_grad(), rig.card.call_scope(ids):
            output = tied(ids)
        assert torch.equal(output, expected)
    del ids, output
    assert tied.head.weight is tied.embedding.weight
    assert tied.first.scale is tied.second.scale
    rig.model.undo()
    assert rig.card.used_bytes() == 0
    assert tied.head.weight.data_ptr() == tied.embedding.weight.data_ptr()


@pytest.mark.parametrize("profile", PLACEMENTS)
def test_an_edit_made_inside_a_call_is_seen_by_the_next_and_survives(profile):
    rig = Rig()
    conv = rig.unet.module.down_blocks[0].resnets[0].conv1
    expected = conv.weight.detach().clone()
    edited = []

    def edit(module, args):
        if not edited:
            with torch.no_grad():
                module.weight.mul_(1.5)
            edited.append(True)

    conv.register_forward_pre_hook(edit)
    other = Rig(guarded=False)
    with torch.no_grad():
        other.unet.module.down_blocks[0].resnets[0].conv1.weight.mul_(1.5)
    rig.model.switch(profile)
    assert_same(rig.run_job(), other.job())
    assert_same(rig.run_job(), other.job())
    rig.model.undo()
    assert torch.equal(conv.weight, expected * 1.5)


def test_without_a_profile_a_call_says_that_none_is_in_force():
    rig = Rig()
    with pytest.raises(Exception, match="No profile is in force"):
        rig.job()


def test_a_layer_gets_its_inputs_where_its_weights_are():
    """Part of a host asks a weight that rests where it is, and puts the layer's inputs there (SD 3's tokens)."""
    brought = []

    class Card(SimulatedCard):
        def bring(self, inputs):
            brought.append(inputs)
            return super().bring(inputs)

    rig = Rig(Card(64 * 2**20), guarded=False)
    rig.model.switch(Profile.SEQUENTIAL)
    with torch.no_grad(), rig.model.component_call(rig.vae, "encode"):
        rig.vae.module.encode(torch.zeros(1, 3, 16, 16))
    layers = [layer for _, layer in leaves(rig.vae.module.encoder)]
    assert len(brought) >= len(layers)


def test_a_call_on_a_card_for_nothing_raises_and_leaves_nothing():
    rig = Rig(SimulatedCard(50), guarded=False)
    rig.model.switch(Profile.SEQUENTIAL)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        _through_placement(rig)
    rig.model.repair()
    assert rig.on_card() == set()


@pytest.mark.parametrize("profile", [Profile.LOWVRAM, Profile.SEQUENTIAL])
def test_a_layer_called_by_itself_runs_where_its_weights_rest(profile):
    rig = Rig()
    rig.model.switch(profile)
    layer = next(leaf for _, leaf in leaves(rig.unet.module) if isinstance(leaf, torch.nn.Conv2d))
    with torch.no_grad():
        layer(torch.zeros(1, layer.in_channels, 4, 4))
    assert rig.card.used_bytes() == 0
    rig.run_job()
    with torch.no_grad():
        layer(torch.zeros(1, layer.in_channels, 4, 4))
    assert rig.card.used_bytes() == 0
