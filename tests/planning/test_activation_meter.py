"""The meter's count without memory against what the simulated card really counts."""

from __future__ import annotations

import threading
import types

import pytest
import torch

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.planning.activation_meter import ActivationMeter, fake_dtype, without_fused_attention
from sd_webui_spillway.units import GIB
from tests.placed_rig import Rig, components, make, weights
from tests.torch_models import TiedEncoder, UNet


def unet_inputs(rows: int, size: int):
    return (torch.zeros(rows, 4, size, size), torch.tensor(500), torch.zeros(rows, 6, 8)), {
        "added": {"time_ids": torch.zeros(rows, 8)}
    }


CASES = {
    "text": ("forward", lambda: ((torch.zeros(4, 6, dtype=torch.int64),), {})),
    "unet": ("forward", lambda: unet_inputs(2, 32)),
    "unet large": ("forward", lambda: unet_inputs(4, 48)),
    "encode": ("encode", lambda: ((torch.zeros(1, 3, 64, 96),), {})),
    "decode": ("decode", lambda: ((torch.zeros(2, 4, 32, 32),), {"return_dict": False})),
}


def module_for(case: str):
    text, unet, vae = components()
    return {"text": text, "unet": unet}.get(case.split()[0], vae).module


def counted_peak(module, call, inputs) -> int:
    without_fused_attention(module)
    card = SimulatedCard(4 * GIB)
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = card.put(tensor)
    on_card = card.used_bytes()
    args, kwargs = inputs()
    with torch.no_grad(), card.call_scope((args, kwargs)):
        getattr(module, call)(*args, **kwargs)
    return card.peak_bytes() - on_card


@pytest.mark.parametrize("case", CASES)
def test_it_counts_what_a_real_call_takes(case):
    call, inputs = CASES[case]
    metered = ActivationMeter(module_for(case)).peak_bytes(call, inputs)
    assert metered == pytest.approx(counted_peak(module_for(case), call, inputs), rel=0.01)


def test_more_rows_and_larger_pictures_take_more():
    meter = ActivationMeter(make(UNet))
    peaks = [meter.peak_bytes("forward", lambda r=rows, s=size: unet_inputs(r, s))
             for rows, size in ((1, 16), (2, 16), (2, 32), (4, 32))]
    assert peaks == sorted(peaks)
    assert peaks[1] == pytest.approx(2 * peaks[0], rel=0.05)


def test_the_real_module_is_left_as_it_is():
    parts = components()
    before = [(tensor, tensor.clone(), tensor.data_ptr()) for tensor in weights(parts)]
    for part in parts:
        ActivationMeter(part.module)
    ActivationMeter(parts[1].module).peak_bytes("forward", lambda: unet_inputs(1, 8))
    for tensor, (old, copy, address) in zip(weights(parts), before, strict=True):
        assert tensor is old
        assert torch.equal(tensor, copy)
        assert tensor.data_ptr() == address
    assert type(next(parts[1].module.parameters())) is torch.nn.Parameter


def test_it_takes_no_memory_for_sizes_that_would_not_fit():
    meter = ActivationMeter(make(UNet))
    assert meter.peak_bytes("forward", lambda: unet_inputs(64, 512)) > 4 * GIB


def test_a_placed_and_guarded_module_counts_as_before(request):
    before = ActivationMeter(make(UNet, 2)).peak_bytes("forward", lambda: unet_inputs(1, 8))
    rig = Rig()
    rig.model.switch(Profile.SEQUENTIAL)
    request.addfinalizer(rig.guard.undo)
    rig.unet.module.forward = types.MethodType(lambda module: threading.Lock(), rig.card)
    assert ActivationMeter(rig.unet.module).peak_bytes("forward", lambda: unet_inputs(1, 8)) == before


def test_tied_weights_stay_tied_and_are_not_activations():
    meter = ActivationMeter(make(TiedEncoder))
    ids = torch.zeros(1, 6, dtype=torch.int64)
    peak = meter.peak_bytes("forward", lambda: ((torch.zeros_like(ids),), {}))
    assert peak < 4 * 6 * (50 + 4 * 8) + 100


def test_half_precision_is_counted_as_two_bytes():
    assert fake_dtype(torch.float16) is torch.bfloat16
    assert fake_dtype(torch.float32) is torch.float32
    whole = ActivationMeter(make(UNet)).peak_bytes("forward", lambda: unet_inputs(2, 32))
    module = make(UNet).half()

    def half_inputs():
        args, kwargs = unet_inputs(2, 32)
        return (args[0].bfloat16(), args[1], args[2].bfloat16()), {"added": {
            "time_ids": kwargs["added"]["time_ids"].bfloat16()
        }}

    assert ActivationMeter(module).peak_bytes("forward", half_inputs) == pytest.approx(whole / 2, rel=0.2)


def test_two_threads_may_ask_at_once():
    meter = ActivationMeter(make(UNet))
    expected = meter.peak_bytes("forward", lambda: unet_inputs(1, 16))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(meter.peak_bytes("forward", lambda: unet_inputs(1, 16))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 3
