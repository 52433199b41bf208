"""How much a layer suffers when its weights are read in place: how often each byte crosses the link for one image.

The rule is fitted to one H200 (PCIe 5, 55 GB/s from pinned memory), fp16. *Crossings* are the seconds that a call takes
longer than with its weights on the card, over the seconds of one copy of them:

===========================================  ======  =========
layer                                        rows    crossings
===========================================  ======  =========
linear 1280 to 1280                          8192    36
linear 1280 to 10240                         2048    8.5
linear 2048 to 1280 (attention to the text)  154     3.2
convolution 320 to 320, 3 × 3 at 128²        32768   1.5
convolution 1280 to 1280, 3 × 3 at 32²       2048    1.7
===========================================  ======  =========

So a matrix product reads its weights again for about every 230 rows, and never less than three times; a convolution
hardly more than once, whatever its size. An embedding is read where it is looked up and nowhere else. Weights of no
account, such as norms and biases, were not measured: they stay on the card, because all of them together free next to
nothing and each would be a round trip over the link.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import nn

from ..component import ComponentKind

_ROWS_A_READING = 230
_FEWEST_READINGS = 3.2
_CONVOLUTION = 1.6
_CALLS_AN_IMAGE = 20
"""Of the UNet: A1111's steps. The other components are called once or twice."""
_USUAL_ROWS = 2048
"""Of a UNet's matrix product that was not seen at work yet: most of SDXL's at 1024² for two pictures. Any other
component has a prompt's."""


class Reading(str, Enum):
    """The way a layer reads a weight."""

    LOOKED_UP = "looked up"
    CONVOLVED = "convolved"
    MULTIPLIED = "multiplied"


def reading_of(module: nn.Module, tensor: torch.Tensor) -> Reading:
    """How the module that owns a weight reads it. What is not known is taken for a matrix product, the worst."""
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Reading.LOOKED_UP
    if tensor.dim() > 2 and tensor.shape[2:].numel() > 1:
        return Reading.CONVOLVED
    return Reading.MULTIPLIED


def suffering(reading: Reading, component: ComponentKind, rows: int | None) -> float:
    """Times each byte of a weight crosses the link for one image.

    Args:
        rows: of the matrix that a call multiplies with the weight; ``None`` is unknown yet.
    """
    steps = component is ComponentKind.UNET
    calls = _CALLS_AN_IMAGE if steps else 1
    if reading is Reading.LOOKED_UP:
        return 0.0
    if reading is Reading.CONVOLVED:
        return calls * _CONVOLUTION
    if rows is None:
        rows = _USUAL_ROWS if steps else 0
    return calls * max(_FEWEST_READINGS, rows / _ROWS_A_READING)
