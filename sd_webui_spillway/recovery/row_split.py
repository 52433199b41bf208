"""Split one call over the rows of its inputs (cond and uncond, images of a batch) and join the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..placement.tensor_tree import map_tensors


def rows_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """The rows of a call: the first dimension of its first tensor that has one."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            return int(value.shape[0])
    return None


def call_by_rows(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], rows: int, rows_per_call: int
) -> Any:
    """Call with ``rows_per_call`` rows at a time. Tensors of ``rows`` rows are cut, all else is passed as it is.

    Returns:
        What one whole call would have returned, within rounding.
    """
    outputs = []
    for start in range(0, rows, rows_per_call):
        part_args, part_kwargs = map_tensors((args, dict(kwargs)), _cutter(rows, start, rows_per_call))
        outputs.append(function(*part_args, **part_kwargs))
    return _join(outputs)


def _cutter(rows: int, start: int, count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[start : start + count] if tensor.dim() > 0 and tensor.shape[0] == rows else tensor

    return cut


def _join(outputs: list[Any]) -> Any:
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(outputs) if first.dim() > 0 else first
    if isinstance(first, dict):
        joined = {key: _join([output[key] for output in outputs]) for key in first}
        return joined if type(first) is dict else type(first)(**joined)
    if isinstance(first, (list, tuple)):
        return type(first)(_join([output[index] for output in outputs]) for index in range(len(first)))
    parameters = getattr(first, "parameters", None)
    if isinstance(parameters, torch.Tensor):
        # A diagonal Gaussian (what a VAE encodes to) is built from its parameters alone.
        return type(first)(torch.cat([output.parameters for output in outputs]))
    return first
