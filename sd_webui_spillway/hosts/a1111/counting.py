"""A checkpoint's layers without memory: what the host hangs on them is left out of the count of activations."""

from __future__ import annotations

from types import MethodType
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

_OPTIMISED_IN = "modules.sd_hijack_optimizations"
_LORA_KNOWS_IT_BY = "network_layer_name"
_MERGES_TOKENS = "ToMeBlock"


def adapt(copy: nn.Module) -> None:
    """Make a weightless copy run by itself.

    The built-in LoRA would back up weights and edit them in every layer that carries its name. Of the host's attentions
    one runs on a GPU only, others cut their work by what is free at the moment, and all read the hypernetworks of the
    job before: none needs more than torch's own, which saves memory as well. Token merging is told the picture's size
    by a hook, which a copy has not; without it a block takes what it takes at most.
    """
    for part in copy.modules():
        vars(part).pop(_LORA_KNOWS_IT_BY, None)
        if type(part).__name__ == _MERGES_TOKENS:
            part.__class__ = cast("Any", type(part))._parent
        if type(part).forward.__module__ == _OPTIMISED_IN:
            part.forward = MethodType(_attend if hasattr(part, "to_q") else _attend_to_picture, part)


def _attend(self: Any, x: torch.Tensor, context: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Cross attention as the original layout's UNets have it."""
    context = x if context is None else context
    query, key, value = (
        part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        for part in (self.to_q(x), self.to_k(context), self.to_v(context))
    )
    attended: torch.Tensor = functional.scaled_dot_product_attention(query, key, value)
    result: torch.Tensor = self.to_out(attended.transpose(1, 2).flatten(2))
    return result


def _attend_to_picture(self: Any, x: torch.Tensor) -> torch.Tensor:
    """The VAE's attention over all places of a picture."""
    normed = self.norm(x)
    query, key, value = (
        part(normed).flatten(2).transpose(1, 2).unsqueeze(1).contiguous() for part in (self.q, self.k, self.v)
    )
    attended = functional.scaled_dot_product_attention(query, key, value).squeeze(1).transpose(1, 2)
    result: torch.Tensor = x + self.proj_out(attended.reshape(x.shape))
    return result
