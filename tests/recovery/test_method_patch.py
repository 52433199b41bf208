"""One method of one object, replaced and put back."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.recovery.method_patch import MethodPatch


class Doubler(nn.Module):
    def forward(self, x: torch.Tensor, *, times: int = 2) -> torch.Tensor:
        """Multiplies."""
        return x * times


def plus_one(original, args, kwargs):
    return original(*args, **kwargs) + 1


def test_it_runs_in_place_of_the_method_for_this_object_only():
    module, other = Doubler(), Doubler()
    MethodPatch(module, "forward", plus_one)
    assert module(torch.tensor(3), times=4) == 13
    assert other(torch.tensor(3)) == 6


def test_the_signature_and_the_name_are_kept():
    module = Doubler()
    before = inspect.signature(module.forward)
    MethodPatch(module, "forward", plus_one)
    assert inspect.signature(module.forward) == before
    assert (module.forward.__name__, module.forward.__doc__) == ("forward", "Multiplies.")


def test_undo_leaves_no_trace_and_a_second_time_does_nothing():
    module = Doubler()
    attributes = set(vars(module))
    patch = MethodPatch(module, "forward", plus_one)
    patch.undo()
    patch.undo()
    assert set(vars(module)) == attributes
    assert module(torch.tensor(3)) == 6


def test_an_instances_own_method_is_put_back():
    module = Doubler()
    own = lambda x: x * 100  # noqa: E731 - somebody else's patch
    module.forward = own
    patch = MethodPatch(module, "forward", plus_one)
    assert module(torch.tensor(1)) == 101
    patch.undo()
    assert module.forward is own


def test_two_patches_come_off_in_reverse_order():
    module = Doubler()
    first = MethodPatch(module, "forward", plus_one)
    second = MethodPatch(module, "forward", plus_one)
    assert module(torch.tensor(3)) == 8
    with pytest.raises(UnavailableError, match=r"Doubler\.forward cannot be undone, because another one was put over"):
        first.undo()
    assert module(torch.tensor(3)) == 8, "the later patch still stands"
    second.undo()
    first.undo()
    assert "forward" not in vars(module)


def test_an_exception_passes_through():
    module = Doubler()
    MethodPatch(module, "forward", lambda original, args, kwargs: original(*args, **kwargs))
    with pytest.raises(TypeError):
        module(torch.tensor(1), nonsense=True)
