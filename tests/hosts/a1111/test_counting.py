"""What activations are counted as: half precision under autocast, the attentions of the host, its LoRA left out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.hosts.a1111 import counting
from sd_webui_spillway.hosts.footprint_meter import FootprintMeter
from sd_webui_spillway.placement.component import Component, ComponentKind
from sd_webui_spillway.placement.profile import PROFILES, Profile
from sd_webui_spillway.planning.activation_meter import ActivationMeter
from sd_webui_spillway.planning.footprint import AllocatorOverhead
from sd_webui_spillway.planning.planner import predictions

WIDTH, HEADS = 16, 2


class Attention(nn.Module):
    """As the original layout's, with the optimisation that the host puts on the class."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_q, self.to_k, self.to_v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.to_out = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.0))

    def forward(self, x, context=None, mask=None):
        raise NotImplementedError("no such kernel here")


class PictureAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, WIDTH)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(WIDTH, WIDTH, 1) for _ in range(4))

    def forward(self, x):
        raise NotImplementedError("no such kernel here")


for _optimised in (Attention, PictureAttention):
    _optimised.forward.__module__ = "modules.sd_hijack_optimizations"


class Mixed(nn.Module):
    """The UNet's types: the picture in full precision, the step in half, and autocast between them and the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.first, self.attend = nn.Linear(WIDTH, WIDTH), nn.Conv2d(4, WIDTH, 3, padding=1), Attention()

    def forward(self, x, steps):
        rows = self.first(x.float()) + self.embed(steps.to(torch.float16))[:, :, None, None]
        return self.attend(rows.flatten(2).transpose(1, 2))


class Lora(nn.Linear):
    """As the built-in LoRA leaves a linear layer: with a name it edits the weights before it runs."""

    network_layer_name: str

    def forward(self, x):
        if getattr(self, "network_layer_name", None) is not None:
            raise AssertionError("a LoRA applied to a copy without weights")
        return super().forward(x)


def inputs():
    return (torch.zeros(2, 4, 8, 8, dtype=torch.bfloat16), torch.zeros(2, WIDTH, dtype=torch.bfloat16)), {}


def test_half_precision_runs_as_under_the_hosts_autocast():
    assert ActivationMeter(Mixed().half(), counting.adapt).peak_bytes("forward", inputs) > 0


def test_weights_of_eight_bits_too():
    module = Mixed().half()
    module.first.to(torch.float8_e4m3fn)
    assert ActivationMeter(module, counting.adapt).peak_bytes("forward", inputs) > 0


def test_an_attention_that_cannot_run_without_memory_is_counted_as_torchs():
    attention, plain = Attention(), Attention()
    counting.adapt(attention)
    x, context = torch.randn(2, 6, WIDTH), torch.randn(2, 3, WIDTH)
    heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (
        attention.to_q(x), attention.to_k(context), attention.to_v(context)
    )]  # fmt: skip
    wanted = attention.to_out(functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
    assert torch.equal(attention(x, context=context), wanted)
    with pytest.raises(NotImplementedError):
        plain(x)


def test_the_vaes_attention_too():
    attention = PictureAttention()
    counting.adapt(attention)
    x = torch.randn(1, WIDTH, 4, 6)
    normed = attention.norm(x)
    query, key, value = (part(normed).flatten(2) for part in (attention.q, attention.k, attention.v))
    weights = torch.softmax(query.transpose(1, 2) @ key / WIDTH**0.5, dim=-1)
    wanted = x + attention.proj_out((value @ weights.transpose(1, 2)).reshape(x.shape))
    torch.testing.assert_close(attention(x), wanted)


def test_no_lora_is_applied_to_what_is_counted():
    layer = Lora(4, 4)
    layer.network_layer_name = "a_layer"
    meter = ActivationMeter(layer, counting.adapt)
    assert meter.peak_bytes("forward", lambda: ((torch.zeros(1, 4),), {})) == 32
    assert layer.network_layer_name == "a_layer"


@pytest.mark.parametrize("fault", ["copy", "count"])
def test_what_cannot_be_counted_is_unknown_and_says_why(fault):
    unet = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def fail(*args):
        raise RuntimeError("a layer of another program")

    shapes = SimpleNamespace(
        counts=lambda component: True, adapt=fail if fault == "copy" else lambda copy: None,
        inputs=lambda component, call, request: fail(),
    )  # fmt: skip
    meter = FootprintMeter([Component("unet", ComponentKind.UNET, unet, {"forward": ()})], shapes, AllocatorOverhead())
    footprint = meter.footprint(ImageRequest(width=512, height=512))
    assert footprint.unknown_because == "the unet's work cannot be counted (a layer of another program)"
    assert footprint.peak_bytes(Profile.DEDICATED) > 100 * 1024**2
    for row in predictions(footprint, 10**12).values():
        assert (row.dedicated_bytes, row.fits) == (None, None)
        assert footprint.unknown_because in row.note
    assert set(predictions(footprint, 10**12)) < set(PROFILES)


def test_a_checkpoint_of_the_same_make_is_not_counted_again():
    asked, counted = [], {}
    shapes = SimpleNamespace(
        counts=lambda component: True, adapt=lambda copy: None,
        inputs=lambda component, call, request: asked.append(component) or ((torch.zeros(request.batch_size, 4),), {}),
    )  # fmt: skip

    def needed(width: int, batch_size: int = 1):
        unet = Component("unet", ComponentKind.UNET, nn.Sequential(nn.Linear(4, width)), {"forward": ()})
        meter = FootprintMeter([unet], shapes, AllocatorOverhead(), counted=counted)
        [call] = meter.footprint(ImageRequest(width=64, height=64, batch_size=batch_size)).calls
        return call.activation_bytes

    assert needed(4) == needed(4)
    assert len(asked) == 1
    assert needed(8) > needed(4)
    assert needed(4, batch_size=2) > needed(4)
    assert len(asked) == 3
