"""A call in rows gives what the whole call gives."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sd_webui_spillway.recovery.row_split import call_by_rows, rows_of
from tests.placed_rig import make
from tests.torch_models import Gaussian, Output, UNet


def values(rows: int, *shape: int) -> torch.Tensor:
    return torch.arange(rows * max(1, torch.Size(shape).numel()), dtype=torch.float32).view(rows, *shape)


@given(rows=st.integers(1, 9), at_once=st.integers(1, 9), width=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_any_count_of_rows_any_structure(rows, at_once, width):
    calls = []

    def function(x, scalar, *, nested, flag):
        calls.append(len(x))
        assert len(x) <= at_once
        assert scalar.dim() == 0
        assert flag == "as it is"
        assert len(nested["deep"][0]) == len(x)
        y = x * scalar + nested["deep"][0]
        gaussian = Gaussian(torch.cat([y, y], 1))
        return Output(sample=y, both=(y + 1, [y + 2]), step=scalar, note="kept", gaussian=gaussian)

    x = values(rows, width)
    whole_at_once, at_once = at_once, max(rows, at_once)
    nested = {"deep": [values(rows, width) * 10, torch.tensor(1.0)]}
    expected = function(x, torch.tensor(3.0), nested=nested, flag="as it is")
    at_once = whole_at_once
    calls.clear()
    result = call_by_rows(function, (x, torch.tensor(3.0)), {"nested": nested, "flag": "as it is"}, rows, at_once)
    assert sum(calls) == rows
    assert type(result) is Output
    assert torch.equal(result.sample, expected.sample)
    assert torch.equal(result["both"][0], expected["both"][0])
    assert type(result["both"]) is tuple
    assert torch.equal(result["both"][1][0], expected["both"][1][0])
    assert result.step.dim() == 0
    assert result.note == "kept"
    assert torch.equal(result.gaussian.parameters, expected.gaussian.parameters)
    assert torch.equal(result.gaussian.mean, expected.gaussian.mean)


@pytest.mark.parametrize("output", [
    lambda x: {0: x, "one": x + 1}, lambda x: OrderedDict(b=x, a=x * 2), lambda x: [x, None, 3], lambda x: (x,),
])
def test_outputs_keep_their_kind(output):
    x = values(5, 2)
    result = call_by_rows(output, (x,), {}, 5, 2)
    expected = output(x)
    assert type(result) is type(expected)
    pairs = zip(result.items(), expected.items(), strict=True) if isinstance(expected, dict) else [
        ((0, a), (0, b)) for a, b in zip(result, expected, strict=True)
    ]
    for (name, a), (wanted_name, b) in pairs:
        assert name == wanted_name
        assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b


def test_what_has_another_count_of_rows_is_passed_whole():
    shared = values(3, 2)
    seen = []
    call_by_rows(lambda x, context: seen.append(context) or x, (values(4, 2), shared), {}, 4, 1)
    assert len(seen) == 4
    assert all(context is shared for context in seen)


@pytest.mark.parametrize(("args", "kwargs", "rows"), [
    ((torch.zeros(3, 1),), {}, 3),
    ((torch.tensor(1), "text", torch.zeros(2)), {}, 2),
    ((), {"sample": torch.zeros(5, 1)}, 5),
    ((torch.tensor(1),), {"flag": True}, None),
    ((), {}, None),
])
def test_rows_are_the_first_dimension_of_the_first_tensor_that_has_one(args, kwargs, rows):
    assert rows_of(args, kwargs) == rows


@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("return_dict", [True, False])
@torch.no_grad()
def test_a_unets_rows(at_once, return_dict):
    unet = make(UNet)
    args = (torch.randn(5, 4, 8, 8), torch.tensor(300), torch.randn(5, 6, 8))
    kwargs = {"added": {"time_ids": torch.randn(5, 8)}, "return_dict": return_dict}
    whole, parts = unet(*args, **kwargs), call_by_rows(unet, args, kwargs, 5, at_once)
    whole, parts = (whole.sample, parts.sample) if return_dict else (whole[0], parts[0])
    assert (whole - parts).abs().max() <= 1e-5
