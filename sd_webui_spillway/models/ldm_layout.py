"""One table of names between the original (LDM) layout of a checkpoint and diffusers' and transformers' modules.

A table is a list of pairs ``(name in the file, name in the module)``: each stands for a module or a whole subtree,
and what follows the name is the same on both sides. It is written from the configuration and read both ways.
Text encoders carry the prefix ``text_model.`` here, as in transformers before 5; see ``assembly`` for after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from ..errors import ModelFileError
from . import open_clip_layout
from .families import ModelConfig

Pairs = list[tuple[str, str]]
State = dict[str, Tensor]

UNET, VAE, TEXT, TEXT_2 = "unet", "vae", "text_encoder", "text_encoder_2"
PREFIXES: dict[str, dict[str, str]] = {
    "sd1": {UNET: "model.diffusion_model.", VAE: "first_stage_model.", TEXT: "cond_stage_model.transformer."},
    "sd2": {UNET: "model.diffusion_model.", VAE: "first_stage_model.", TEXT: "cond_stage_model.model."},
    "sdxl": {
        UNET: "model.diffusion_model.", VAE: "first_stage_model.", TEXT: "conditioner.embedders.0.transformer.",
        TEXT_2: "conditioner.embedders.1.model.",
    },
}  # fmt: skip
"""Where each component's names begin in a file. SD 2's and SDXL's second text encoder are in OpenCLIP's layout."""
_OPEN_CLIP = {("sd2", TEXT), ("sdxl", TEXT_2)}
_UNUSED = ("position_ids", "num_batches_tracked")
_RESNET: Pairs = [
    ("in_layers.0", "norm1"), ("in_layers.2", "conv1"), ("emb_layers.1", "time_emb_proj"),
    ("out_layers.0", "norm2"), ("out_layers.3", "conv2"), ("skip_connection", "conv_shortcut"),
]  # fmt: skip
_VAE_ATTENTION: Pairs = [
    ("norm", "group_norm"), ("q", "to_q"), ("k", "to_k"), ("v", "to_v"), ("proj_out", "to_out.0"),
]  # fmt: skip


def _joined(ldm: str, module: str, pairs: Pairs) -> Iterator[tuple[str, str]]:
    for ldm_part, module_part in pairs:
        yield f"{ldm}.{ldm_part}", f"{module}.{module_part}"


def unet_pairs(config: Mapping[str, Any]) -> Pairs:
    """The UNet's table. In the file all blocks of one side are numbered through; a block is a resnet, then its
    transformer if it has one, then the upsampler if it is a level's last."""
    pairs: Pairs = [
        ("time_embed.0", "time_embedding.linear_1"), ("time_embed.2", "time_embedding.linear_2"),
        ("label_emb.0.0", "add_embedding.linear_1"), ("label_emb.0.2", "add_embedding.linear_2"),
        ("input_blocks.0.0", "conv_in"), ("out.0", "conv_norm_out"), ("out.2", "conv_out"),
        ("middle_block.1", "mid_block.attentions.0"),
        *_joined("middle_block.0", "mid_block.resnets.0", _RESNET),
        *_joined("middle_block.2", "mid_block.resnets.1", _RESNET),
    ]  # fmt: skip
    layers, levels = config["layers_per_block"], len(config["block_out_channels"])
    block = 1
    for level, kind in enumerate(config["down_block_types"]):
        for layer in range(layers):
            module = f"down_blocks.{level}"
            pairs += _joined(f"input_blocks.{block}.0", f"{module}.resnets.{layer}", _RESNET)
            if kind.startswith("CrossAttn"):
                pairs.append((f"input_blocks.{block}.1", f"{module}.attentions.{layer}"))
            block += 1
        if level < levels - 1:
            pairs.append((f"input_blocks.{block}.0.op", f"down_blocks.{level}.downsamplers.0.conv"))
            block += 1
    block = 0
    for level, kind in enumerate(config["up_block_types"]):
        attention = kind.startswith("CrossAttn")
        for layer in range(layers + 1):
            module = f"up_blocks.{level}"
            pairs += _joined(f"output_blocks.{block}.0", f"{module}.resnets.{layer}", _RESNET)
            if attention:
                pairs.append((f"output_blocks.{block}.1", f"{module}.attentions.{layer}"))
            if layer == layers and level < levels - 1:
                pairs.append((f"output_blocks.{block}.{1 + attention}.conv", f"{module}.upsamplers.0.conv"))
            block += 1
    return pairs


def vae_pairs(config: Mapping[str, Any]) -> Pairs:
    """The VAE's table. The file numbers the decoder's levels from the full picture, diffusers from the latents."""
    pairs: Pairs = [("quant_conv", "quant_conv"), ("post_quant_conv", "post_quant_conv")]
    levels, layers = len(config["block_out_channels"]), config["layers_per_block"]
    for side, ldm_side, module_side, count in (
        ("encoder", "down", "down_blocks", layers),
        ("decoder", "up", "up_blocks", layers + 1),
    ):
        pairs += _joined(
            side, side, [("conv_in", "conv_in"), ("norm_out", "conv_norm_out"), ("conv_out", "conv_out")]
        )
        pairs += _joined(f"{side}.mid.attn_1", f"{side}.mid_block.attentions.0", _VAE_ATTENTION)
        resnets = [(f"{side}.mid.block_{i + 1}", f"{side}.mid_block.resnets.{i}") for i in range(2)]
        for level in range(levels):
            ldm = f"{side}.{ldm_side}.{level}"
            module = f"{side}.{module_side}.{level if side == 'encoder' else levels - 1 - level}"
            resnets += [(f"{ldm}.block.{layer}", f"{module}.resnets.{layer}") for layer in range(count)]
            pairs.append((f"{ldm}.{ldm_side}sample.conv", f"{module}.{ldm_side}samplers.0.conv"))
        for ldm, module in resnets:
            inner = [(part, part) for part in ("norm1", "conv1", "norm2", "conv2")]
            pairs += _joined(ldm, module, [*inner, ("nin_shortcut", "conv_shortcut")])
    return pairs


def _renamed(name: str, table: Mapping[str, str]) -> str | None:
    """The name with its longest known beginning exchanged, or ``None``."""
    end = len(name)
    while (end := name.rfind(".", 0, end)) > 0:
        known = table.get(name[:end])
        if known is not None:
            return known + name[end:]
    return None


def ldm_module(name: str, table: Mapping[str, str]) -> str | None:
    """What the module of this name in diffusers is called in the file, or ``None``; ``table`` is one of pairs, turned
    round. A module that its table stands for as a whole is found as well as one inside it."""
    renamed = _renamed(f"{name}.weight", table)
    return renamed.removesuffix(".weight") if renamed is not None else None


def _is_vae_attention(name: str) -> bool:
    """A weight that is a 1×1 convolution in the file and a linear layer in diffusers."""
    return name.endswith(".weight") and ("mid.attn_1." in name or "mid_block.attentions.0." in name)


def component_prefixes(config: ModelConfig) -> dict[str, str]:
    """Component name → where its names begin in a file of this family."""
    return PREFIXES[config.family]


def _table(component: str, config: ModelConfig) -> Pairs:
    return unet_pairs(config.unet) if component == UNET else vae_pairs(config.vae)


def to_diffusers(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, State]:
    """A file's tensors, sorted into components and named as diffusers and transformers name them.

    Returns ``{"unet": …, "vae": …, "text_encoder": …[, "text_encoder_2": …]}``. Shares memory with ``tensors`` where
    the layouts agree. Names outside the components (``model_ema.``, noise tables, a loss) are left out.

    Raises:
        ModelFileError: a name inside a component that its table does not know.
    """
    parts: dict[str, State] = {}
    for component, prefix in component_prefixes(config).items():
        inside = {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        inside = {
            name: tensor
            for name, tensor in inside.items()
            if not name.endswith(_UNUSED) and not name.startswith(("loss.", "model_ema."))
        }
        if (config.family, component) in _OPEN_CLIP:
            text = config.text_encoders[1 if component == TEXT_2 else 0]
            parts[component] = open_clip_layout.to_transformers(inside, text)
        elif component == TEXT:
            parts[component] = {f"text_model.{name.removeprefix('text_model.')}": inside[name] for name in inside}
        else:
            parts[component] = _exchanged(inside, dict(_table(component, config)), component)
    return parts


def to_ldm(parts: Mapping[str, Mapping[str, Tensor]], config: ModelConfig) -> State:
    """The reverse of :func:`to_diffusers`: components' state dicts as one file's tensors."""
    tensors: State = {}
    for component, prefix in component_prefixes(config).items():
        state = {name: tensor for name, tensor in parts[component].items() if not name.endswith(_UNUSED)}
        if component.startswith(TEXT):
            state = {
                name if name.startswith(("text_model.", "text_projection.")) else f"text_model.{name}": tensor
                for name, tensor in state.items()
            }
            if (config.family, component) in _OPEN_CLIP:
                state = open_clip_layout.to_open_clip(state)
        else:
            table = {module: ldm for ldm, module in _table(component, config)}
            state = _exchanged(state, table, component)
        tensors |= {prefix + name: tensor for name, tensor in state.items()}
    return tensors


def _exchanged(state: Mapping[str, Tensor], table: Mapping[str, str], component: str) -> State:
    exchanged: State = {}
    for name, tensor in state.items():
        new = _renamed(name, table)
        if new is None:
            raise ModelFileError(f"The model's {component} has a layer that no known model has: {name}.")
        if component == VAE and _is_vae_attention(name) and ".norm" not in name and "group_norm" not in name:
            tensor = tensor.reshape(tensor.shape[:2]) if ".attn_1." in name else tensor.reshape(*tensor.shape, 1, 1)
        exchanged[new] = tensor
    return exchanged
