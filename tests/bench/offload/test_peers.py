"""The peers' own pieces, as far as they run without a card."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import nn

from sd_webui_spillway.bench.offload.models import MODELS, empty, materialised, tensors
from sd_webui_spillway.bench.offload.peers.first_come import _SOURCE, _compiler, build
from sd_webui_spillway.bench.offload.peers.ours import hook_seconds
from sd_webui_spillway.placement.tensor_tree import map_tensors


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_weights_that_the_estimates_count_on(name):
    pytest.importorskip("diffusers", reason="needs diffusers")
    spec = MODELS[name]
    module = empty(spec, torch.device("meta"))
    assert sum(tensor.nbytes for tensor in tensors(module)) == pytest.approx(spec.weights_bytes, rel=0.05)
    assert {parameter.dtype for parameter in module.parameters()} == {spec.dtype}
    assert all(budget < spec.weights_bytes for budget in spec.budgets_bytes)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_takes_the_inputs_it_is_given(name):
    """Without memory: every tensor is only a shape."""
    pytest.importorskip("diffusers", reason="needs diffusers")
    spec = MODELS[name]
    inputs = map_tensors(spec.inputs(), lambda tensor: tensor.to("meta"))
    [result] = empty(spec, torch.device("meta"))(**inputs)
    first = next(iter(inputs.values()))
    assert result.shape == first.shape
    assert result.dtype is spec.dtype


def test_random_weights_are_the_same_every_time_and_the_output_is_finite():
    pytest.importorskip("diffusers", reason="needs diffusers")
    spec, cpu = MODELS["tiny"], torch.device("cpu")
    one, other = materialised(spec, cpu), materialised(spec, cpu)
    assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))
    with torch.no_grad():
        assert torch.isfinite(one(**spec.inputs())[0]).all()


def test_hooks_are_counted_and_left_as_they_were():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    called = []
    for layer in module:
        layer.register_forward_pre_hook(lambda *_: called.append(1))
    before = [dict(layer._forward_pre_hooks) for layer in module]
    calls, seconds = hook_seconds(module, lambda: module(torch.ones(1, 4)))
    assert calls == 2
    assert 0 <= seconds < 0.1
    assert [dict(layer._forward_pre_hooks) for layer in module] == before
    assert len(called) == 10


def test_managed_memory_is_never_used():
    assert "cudaMallocManaged" not in _SOURCE.read_text()


@pytest.mark.skipif(_compiler() is None, reason="needs a C compiler")
def test_first_come_takes_the_card_until_the_budget_and_system_memory_after_it(tmp_path):
    library = ctypes.CDLL(str(build(tmp_path)))
    blocks: list[ctypes.Array] = []  # all are kept, so that no address comes twice
    taken: set[int] = set()
    where: dict[int, str] = {}

    def take(place: str, pointer, size: int) -> int:
        block = ctypes.create_string_buffer(size)
        address = ctypes.addressof(block)
        blocks.append(block)
        taken.add(address)
        where[address] = place
        pointer[0] = address
        return 0

    def as_card_sees_it(pointer, host: int, _flags: int) -> int:
        pointer[0] = host
        return 0

    def free(address: int) -> int:
        taken.remove(address)
        return 0

    pointer = ctypes.POINTER(ctypes.c_void_p)
    size, flags, plain = ctypes.c_size_t, ctypes.c_uint, ctypes.c_void_p
    functions = [
        ctypes.CFUNCTYPE(ctypes.c_int, pointer, size)(lambda where_to, size: take("card", where_to, size)),
        ctypes.CFUNCTYPE(ctypes.c_int, pointer, size, flags)(lambda where_to, size, _: take("system", where_to, size)),
        ctypes.CFUNCTYPE(ctypes.c_int, pointer, plain, flags)(as_card_sees_it),
        ctypes.CFUNCTYPE(ctypes.c_int, plain)(free),
        ctypes.CFUNCTYPE(ctypes.c_int, plain)(free),
    ]
    library.spill_init(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
    library.spill_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.spill_malloc.restype = ctypes.c_void_p
    library.spill_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.spill_set_budget.argtypes = [ctypes.c_size_t]
    library.spill_peak_host.restype = library.spill_peak_device.restype = ctypes.c_size_t
    library.spill_set_budget(10_000)
    first, second, third = (library.spill_malloc(4000, 0, None) for _ in range(3))
    assert [where[address] for address in (first, second, third)] == ["card", "card", "system"]
    library.spill_free(first, 4000, 0, None)
    assert library.spill_malloc(4000, 0, None) == first, "what is freed is given out again"
    assert (library.spill_peak_device(), library.spill_peak_host()) == (8192, 4096)
    library.spill_free(second, 4000, 0, None)
    larger = library.spill_malloc(5000, 0, None)
    assert where[larger] == "card"
    assert second not in taken, "unused memory on the card makes room before system memory is taken"
    for address in (first, third, larger):
        library.spill_free(address, 0, 0, None)
    library.spill_trim()
    assert taken == set()
