"""The one predicate: the card's memory, and nothing else."""

from __future__ import annotations

import itertools

import pytest
import torch

from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.out_of_memory import is_out_of_memory, lacking_bytes


class AcceleratorError(RuntimeError):
    """As newest torch raises it."""

    def __init__(self, code: int) -> None:
        super().__init__("CUDA error: something")
        self.error_code = code


@pytest.mark.parametrize("error", [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    torch.cuda.OutOfMemoryError("Allocation on device"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported asynchronously"),
    RuntimeError("HIP out of memory. Tried to allocate 1 GiB"),
    RuntimeError("HIP error: out of memory"),
    RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    RuntimeError("Not enough memory, use lower resolution (max approx. 1024x1024). Need: 4.0GB free, Have:2.0GB free"),
    RuntimeError("CUDA driver error: out of memory"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
    RuntimeError("FIND was unable to find an engine to execute this computation"),
    AcceleratorError(2),
])
def test_the_card_is_out_of_memory(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", [
    None,
    MemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried to "
                 "allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("Expected all tensors to be on the same device"),
    ValueError("CUDA out of memory"),
    KeyboardInterrupt("CUDA out of memory"),
    AcceleratorError(700),
    OSError(12, "Cannot allocate memory"),
])
def test_it_is_something_else(error):
    assert not is_out_of_memory(error)


def test_the_cpu_allocators_own_error_is_not_meant():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    assert not is_out_of_memory(caught.value)


def test_the_simulated_cards_own_error_is_meant():
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        SimulatedCard(1).put(torch.zeros(2))
    assert is_out_of_memory(caught.value)


def chain(*errors: BaseException, explicit: bool = True) -> BaseException:
    for outer, inner in itertools.pairwise(errors):
        if explicit:
            outer.__cause__ = inner
        else:
            outer.__context__ = inner
    return errors[0]


def test_an_error_raised_from_it_counts_a_few_deep():
    oom = torch.cuda.OutOfMemoryError("CUDA out of memory")
    assert is_out_of_memory(chain(ValueError("the pipeline failed"), oom))
    assert is_out_of_memory(chain(ValueError("a"), RuntimeError("b"), KeyError("c"), oom))


def test_an_error_while_handling_it_does_not():
    oom = torch.cuda.OutOfMemoryError("CUDA out of memory")
    assert not is_out_of_memory(chain(ValueError("a bug in a handler"), oom, explicit=False))


def test_a_cause_that_leads_back_to_itself_ends():
    first, second = ValueError("a"), ValueError("b")
    assert not is_out_of_memory(chain(first, second, first))


@pytest.mark.parametrize(("text", "lacking"), [
    ("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has", 3 * 2**29),
    ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0", 20 * 2**20),
    ("Simulated card out of memory. Tried to allocate 0 KiB; 3 MiB of 3 MiB are in use.", 0),
    ("CUDNN_STATUS_ALLOC_FAILED", None),
])
def test_what_an_allocation_asked_for(text, lacking):
    assert lacking_bytes(RuntimeError(text)) == lacking
