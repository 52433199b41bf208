"""One method of one object, replaced and put back."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from sd_webui_spillway.recovery.method_patch import MethodPatch, PatchSet


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
    module, patches = Doubler(), PatchSet()
    patches.wrap(module, "forward", plus_one)
    patches.wrap(module, "forward", plus_one)
    assert module(torch.tensor(3)) == 8
    patches.undo()
    assert "forward" not in vars(module)


def test_a_patch_under_somebody_elses_stays_and_passes_through():
    module = Doubler()
    ours = MethodPatch(module, "forward", plus_one)
    theirs = MethodPatch(module, "forward", lambda original, args, kwargs: original(*args, **kwargs) * 10)
    assert module(torch.tensor(3)) == 70
    ours.undo()
    assert module(torch.tensor(3)) == 60, "theirs still stands, ours does nothing"
    theirs.undo()
    assert module(torch.tensor(3)) == 6


def test_of_a_class_every_instance_is_wrapped_and_the_instance_comes_first():
    module, seen = Doubler(), []

    def watch(original, args, kwargs):
        seen.append(args[0])
        return original(*args, **kwargs)

    patch = MethodPatch(Doubler, "forward", watch)
    assert module(torch.tensor(3), times=3) == 9
    patch.undo()
    assert module(torch.tensor(3)) == 6
    assert seen == [module]


def test_an_exception_passes_through():
    module = Doubler()
    MethodPatch(module, "forward", lambda original, args, kwargs: original(*args, **kwargs))
    with pytest.raises(TypeError):
        module(torch.tensor(1), nonsense=True)
