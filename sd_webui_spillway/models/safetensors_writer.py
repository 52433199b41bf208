"""Writing safetensors tensor by tensor; the library's own writer wants them all in memory at once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

Progress = Callable[[int, int], None]
DTYPE_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
"""The format's names for the number types a checkpoint is written in."""


def write_safetensors(
    path: Path,
    forms: Mapping[str, tuple[torch.dtype, Sequence[int]]],
    tensor_of: Callable[[str], Tensor],
    progress: Progress,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a tensor for each name in ``forms`` (its number type and shape), asking ``tensor_of`` for one at a time.
    ``progress(done, total)`` is called after each."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    start = 0
    for name, (dtype, shape) in forms.items():
        end = start + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for done, name in enumerate(forms, 1):
            file.write(tensor_of(name).contiguous().reshape(-1).view(torch.uint8).numpy().data)
            progress(done, len(forms))
