"""OpenCLIP's names for a text transformer (SD 2's encoder, SDXL's second one) against transformers' CLIP names.

OpenCLIP keeps query, key and value in one matrix and its projection transposed; its text transformer is the one of
``open_clip.model.CLIP``: ``positional_embedding``, ``token_embedding``, ``transformer.resblocks``, ``ln_final``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelFileError

_TOP = {
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
}
_INNER = {
    "ln_1": "layer_norm1", "ln_2": "layer_norm2", "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2",
    "attn.out_proj": "self_attn.out_proj",
}  # fmt: skip
_BLOCK = re.compile(r"transformer\.resblocks\.(\d+)\.(.+)\.(weight|bias)")
_JOINED = re.compile(r"transformer\.resblocks\.(\d+)\.attn\.in_proj_(weight|bias)")
_LAYER = re.compile(r"text_model\.encoder\.layers\.(\d+)\.(.+)\.(weight|bias)")
_PROJECTION = "text_projection"
_QKV = ("q_proj", "k_proj", "v_proj")
_UNUSED = ("logit_scale", "attn_mask", "logit_bias")


def to_transformers(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """OpenCLIP's tensors by transformers' names. Blocks past ``num_hidden_layers`` are left out (SD 2 reads the text
    before the last one), and so is the projection where the encoder has none."""
    state: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in _TOP:
            state[_TOP[name]] = tensor
        elif name in (_PROJECTION, f"{_PROJECTION}.weight"):
            if config["with_projection"]:
                # Some tools save the projection as a linear layer, which is transposed already.
                state["text_projection.weight"] = tensor if name.endswith("weight") else tensor.T.contiguous()
        elif name not in _UNUSED:
            state |= _block(name, tensor, int(config["num_hidden_layers"]))
    return state


def _block(name: str, tensor: Tensor, layers: int) -> dict[str, Tensor]:
    joined, plain = _JOINED.fullmatch(name), _BLOCK.fullmatch(name)
    match = joined or plain
    if match is None or (plain is not None and joined is None and plain.group(2) not in _INNER):
        raise ModelFileError(f"The model's text encoder has a layer that no known model has: {name}.")
    if int(match.group(1)) >= layers:
        return {}
    layer = f"text_model.encoder.layers.{match.group(1)}"
    if joined is None:
        return {f"{layer}.{_INNER[match.group(2)]}.{match.group(3)}": tensor}
    if tensor.shape[0] % 3:
        raise ModelFileError(f"The model's text encoder has a layer of unknown shape: {name}.")
    # Copies, so that each parameter owns its bytes: a view would keep, and count, all three.
    parts = (part.clone() for part in tensor.chunk(3))
    return {f"{layer}.self_attn.{part}.{match.group(2)}": value for part, value in zip(_QKV, parts, strict=True)}


def to_open_clip(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of :func:`to_transformers`, for what ``state`` has."""
    top, inner = {new: old for old, new in _TOP.items()}, {new: old for old, new in _INNER.items()}
    tensors: dict[str, Tensor] = {}
    waiting: dict[str, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        match = _LAYER.fullmatch(name)
        if name in top:
            tensors[top[name]] = tensor
        elif name == "text_projection.weight":
            tensors[_PROJECTION] = tensor.T.contiguous()
        elif match is not None and match.group(2) in inner:
            tensors[f"transformer.resblocks.{match.group(1)}.{inner[match.group(2)]}.{match.group(3)}"] = tensor
        elif match is not None and match.group(2).removeprefix("self_attn.") in _QKV:
            joined = f"transformer.resblocks.{match.group(1)}.attn.in_proj_{match.group(3)}"
            parts = waiting.setdefault(joined, {})
            parts[match.group(2).removeprefix("self_attn.")] = tensor
            if len(parts) == len(_QKV):
                tensors[joined] = torch.cat([parts[part] for part in _QKV])
        else:
            raise ModelFileError(f"The model's text encoder has a layer that no known model has: {name}.")
    return tensors
