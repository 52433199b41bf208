"""The one predicate: is this exception the card having run out of memory?"""

from __future__ import annotations

import re

import torch

from ..units import GIB, KIB, MIB

_MESSAGES = re.compile(
    "|".join((
        r"CUDA out of memory",
        r"CUDA (driver )?error: out of memory",
        r"HIP out of memory",
        r"HIP error: out of memory",
        r"MPS backend out of memory",
        r"CUBLAS_STATUS_ALLOC_FAILED",
        r"CUBLAS_STATUS_NOT_INITIALIZED",
        r"CUDNN_STATUS_ALLOC_FAILED",
        r"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        r"(GET|FIND) was unable to find an engine to execute this computation",
        r"Not enough memory, use lower resolution",
    ))
)
"""How libraries below torch, and A1111's Doggettx attention, say it in a plain RuntimeError. cuBLAS reports
NOT_INITIALIZED when its workspace does not fit as its handle is made. torch tries one cuDNN engine after another, lets
each that runs out of memory pass (``aten/src/ATen/native/cudnn/Conv_v8.cpp``), and in the end found none."""
_CUDA_MEMORY_ALLOCATION = 2
"""cudaErrorMemoryAllocation, as newest torch's AcceleratorError carries it."""

_TRIED = re.compile(r"Tried to allocate ([\d.]+) ([KMG]iB)")
"""``c10/cuda/CUDACachingAllocator.cpp`` words it so; what a library below torch lacked is not told."""
_UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}


def lacking_bytes(error: BaseException) -> int | None:
    """What an allocation that failed had asked for, as its message tells it to two decimals; ``None`` is unknown."""
    tried = _TRIED.search(str(error))
    return int(float(tried.group(1)) * _UNITS[tried.group(2)]) if tried else None


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether this error, or the one it was raised from, says that the *card* is out of memory.

    System memory running out (``MemoryError``, torch's "DefaultCPUAllocator: can't allocate memory") is not meant:
    a smaller placement would make that worse.
    """
    for _ in range(4):
        if error is None:
            return False
        if isinstance(error, torch.cuda.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and (
            getattr(error, "error_code", None) == _CUDA_MEMORY_ALLOCATION or _MESSAGES.search(str(error))
        ):
            return True
        error = error.__cause__
    return False
