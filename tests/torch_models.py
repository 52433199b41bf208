"""Small modules in plain torch with the structure of a diffusion model: they run wherever torch does."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Output(dict):
    """A library's output object: a mapping made from keywords, its values readable as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


class Gaussian:
    """What a VAE encodes to."""

    def __init__(self, parameters: torch.Tensor) -> None:
        self.parameters = parameters
        self.mean, self.logvar = parameters.chunk(2, dim=1)


class Resnet(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, time_width: int | None = None) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(4, channels_in)
        self.nonlinearity = nn.SiLU()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.time_emb_proj = nn.Linear(time_width, channels_out) if time_width else None
        self.norm2 = nn.GroupNorm(4, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(channels_in, channels_out, 1) if channels_in != channels_out else None
        self.output_scale_factor = 1.0

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        hidden = self.conv1(self.nonlinearity(self.norm1(x)))
        if self.time_emb_proj is not None and time is not None:
            hidden = hidden + self.time_emb_proj(time)[:, :, None, None]
        hidden = self.conv2(self.nonlinearity(self.norm2(hidden)))
        if self.conv_shortcut is not None:
            x = self.conv_shortcut(x)
        return (x + hidden) / self.output_scale_factor


class Attention(nn.Module):
    """Self attention, then attention to the text; ``nn.MultiheadAttention`` uses its ``out_proj`` uncalled."""

    def __init__(self, channels: int, text_width: int | None = None) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(4, channels)
        self.self_attention = nn.MultiheadAttention(channels, 2, batch_first=True)
        self.text_attention = (
            nn.MultiheadAttention(channels, 2, kdim=text_width, vdim=text_width, batch_first=True)
            if text_width else None
        )

    def forward(self, x: torch.Tensor, text: torch.Tensor | None = None) -> torch.Tensor:
        samples, channels, height, width = x.shape
        hidden = self.group_norm(x).flatten(2).transpose(1, 2)
        hidden = hidden + self.self_attention(hidden, hidden, hidden, need_weights=False)[0]
        if self.text_attention is not None and text is not None:
            hidden = hidden + self.text_attention(hidden, text, text, need_weights=False)[0]
        return x + hidden.transpose(1, 2).reshape(samples, channels, height, width)


class Upsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(functional.interpolate(x, scale_factor=2.0, mode="nearest"))


class Downsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(functional.pad(x, (0, 1, 0, 1)))


class UNetBlock(nn.Module):
    def __init__(
        self, channels_in: int, channels_out: int, width: int, sampler: type[nn.Module] | None = None, depth: int = 1
    ) -> None:
        super().__init__()
        ins = [channels_in, *(channels_out for _ in range(depth - 1))]
        self.resnets = nn.ModuleList([Resnet(one, channels_out, width) for one in ins])
        self.attentions = nn.ModuleList([Attention(channels_out, width) for _ in ins])
        self.samplers = nn.ModuleList([sampler(channels_out)]) if sampler else None

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        for resnet, attention in zip(self.resnets, self.attentions, strict=True):
            x = attention(resnet(x, time), text)
        for sampler in self.samplers or ():
            x = sampler(x)
        return x


class UNet(nn.Module):
    """``forward(sample, timestep, encoder_hidden_states)``; 8 channels at the outside, 16 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.width = width = 8
        self.conv_in = nn.Conv2d(4, 8, 3, padding=1)
        self.time_embedding = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.down_blocks = nn.ModuleList([UNetBlock(8, 16, width, Downsample, depth=2)])
        self.mid_block = UNetBlock(16, 16, width)
        self.up_blocks = nn.ModuleList([UNetBlock(16, 8, width, Upsample)])
        self.conv_norm_out = nn.GroupNorm(4, 8)
        self.conv_act = nn.SiLU()
        self.conv_out = nn.Conv2d(8, 4, 3, padding=1)

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, encoder_hidden_states: torch.Tensor, *,
        added: dict[str, torch.Tensor] | None = None, return_dict: bool = True,
    ) -> Any:
        powers = torch.arange(self.width, dtype=sample.dtype, device=sample.device)
        time = self.time_embedding(torch.sin(timestep.to(sample.dtype) / 2**powers)[None].expand(len(sample), -1))
        if added:
            time = time + added["time_ids"]
        x = self.conv_in(sample)
        for block in (*self.down_blocks, self.mid_block, *self.up_blocks):
            x = block(x, time, encoder_hidden_states)
        x = self.conv_out(self.conv_act(self.conv_norm_out(x)))
        return Output(sample=x) if return_dict else (x,)


class DrawingUNet(UNet):
    """Draws random numbers inside its call, as a dropout or an ancestral patch does."""

    def forward(self, sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(sample + torch.randn(sample.shape, device=sample.device), *args, **kwargs)


class RootParameterUNet(UNet):
    """Owns a parameter at its root, outside every block."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((1, 4, 1, 1), 1.25))

    def forward(self, sample: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(sample * self.gain, *args, **kwargs)


class TextLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + functional.gelu(self.linear(x))


class TextEmbeddings(nn.Module):
    """Owns a buffer beside its two embeddings, so it is called, and moves, as one layer."""

    def __init__(self, width: int, words: int, length: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(words, width)
        self.position_embedding = nn.Embedding(length, width)
        self.register_buffer("position_ids", torch.arange(length)[None], persistent=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.token_embedding(input_ids) + self.position_embedding(self.position_ids[:, : input_ids.shape[1]])


class TextEncoder(nn.Module):
    def __init__(self, width: int = 8, words: int = 50, length: int = 6) -> None:
        super().__init__()
        self.embeddings = TextEmbeddings(width, words, length)
        self.layers = nn.ModuleList([TextLayer(width), TextLayer(width)])
        self.final_norm = nn.LayerNorm(width)

    def forward(self, input_ids: torch.Tensor, *, return_dict: bool = True) -> Any:
        x = self.embeddings(input_ids)
        for layer in self.layers:
            x = layer(x)
        x = self.final_norm(x)
        return Output(last_hidden_state=x, pooled=x[:, -1]) if return_dict else (x, x[:, -1])


class TiedEncoder(nn.Module):
    """The output layer shares the embedding's weight, and two layers share one buffer."""

    def __init__(self, width: int = 8, words: int = 50) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.first = Scaled(width)
        self.second = Scaled(width)
        self.second.scale = self.first.scale
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(self.embedding(input_ids))))


class Scaled(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


class VaeBlock(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, sampler: type[nn.Module] | None, *, up: bool) -> None:
        super().__init__()
        self.resnets = nn.ModuleList([Resnet(channels_in, channels_out), Resnet(channels_out, channels_out)])
        samplers = nn.ModuleList([sampler(channels_out)]) if sampler else None
        self.upsamplers, self.downsamplers = (samplers, None) if up else (None, samplers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in (*self.resnets, *(self.upsamplers or ()), *(self.downsamplers or ())):
            x = module(x)
        return x


class MidBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.resnets = nn.ModuleList([Resnet(channels, channels), Resnet(channels, channels)])
        self.attentions = nn.ModuleList([Attention(channels)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class _Coder(nn.Module):
    def __init__(self, channels: tuple[int, int], ends: tuple[int, int]) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(ends[0], channels[0], 3, padding=1)
        self.conv_norm_out = nn.GroupNorm(4, channels[1])
        self.conv_act = nn.SiLU()
        self.conv_out = nn.Conv2d(channels[1], ends[1], 3, padding=1)

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        x = self.conv_in(sample)
        for block in self.in_order():
            x = block(x)
        return self.conv_out(self.conv_act(self.conv_norm_out(x)))


class Encoder(_Coder):
    def __init__(self) -> None:
        super().__init__((8, 16), (3, 8))
        self.down_blocks = nn.ModuleList([
            VaeBlock(8, 16, Downsample, up=False), VaeBlock(16, 16, None, up=False),
        ])
        self.mid_block = MidBlock(16)

    def in_order(self) -> tuple[nn.Module, ...]:
        return (*self.down_blocks, self.mid_block)


class Decoder(_Coder):
    def __init__(self) -> None:
        super().__init__((16, 8), (4, 3))
        self.mid_block = MidBlock(16)
        self.up_blocks = nn.ModuleList([
            VaeBlock(16, 8, Upsample, up=True), VaeBlock(8, 8, None, up=True)
        ])

    def in_order(self) -> tuple[nn.Module, ...]:
        return (self.mid_block, *self.up_blocks)


class Vae(nn.Module):
    """Half the picture's size inside. ``encode`` and ``decode`` use half of the weights each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
        self.quant_conv, self.post_quant_conv = nn.Conv2d(8, 8, 1), nn.Conv2d(4, 4, 1)

    def encode(self, x: torch.Tensor, *, return_dict: bool = True) -> Any:
        gaussian = Gaussian(self.quant_conv(self.encoder(x)))
        return Output(latent_dist=gaussian) if return_dict else (gaussian,)

    def decode(self, z: torch.Tensor, *, return_dict: bool = True) -> Any:
        picture = self.decoder(self.post_quant_conv(z))
        return Output(sample=picture) if return_dict else (picture,)
