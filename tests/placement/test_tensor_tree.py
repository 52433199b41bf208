"""Tensors in nested arguments: replaced where there are any, and nothing else made anew."""

from __future__ import annotations

from typing import NamedTuple

import torch

from sd_webui_spillway.placement.tensor_tree import map_tensors


class Prompts(list):
    """As AUTOMATIC1111's: a list that knows more than its items."""

    def __init__(self, items=(), width=None):
        super().__init__(items)
        self.width = width


class Pair(NamedTuple):
    picture: torch.Tensor
    words: Prompts


def test_what_holds_no_other_tensor_stays_the_object_it_is():
    prompts, tensor = Prompts(["a lighthouse"], width=512), torch.zeros(2)
    tree = ({"words": prompts, "picture": [tensor]}, 7)
    assert map_tensors(tree, lambda found: found) is tree
    changed = map_tensors(tree, lambda found: found + 1)
    assert changed[0]["words"] is prompts
    assert torch.equal(changed[0]["picture"][0], torch.ones(2))
    assert torch.equal(tensor, torch.zeros(2))


def test_a_named_tuple_stays_one():
    pair = map_tensors(Pair(torch.zeros(1), Prompts()), lambda found: found + 1)
    assert isinstance(pair, Pair)
    assert pair.picture.item() == 1
