"""The order of the calls is a forecast: one that changes is followed, one that flips is not chased."""

from __future__ import annotations

import pytest
import torch

from tests.placement.stream.test_random_trees import Pair, Tree


@pytest.fixture
def pair():
    torch.manual_seed(4)
    return Pair(Tree([[(0, 8)] * 6, [(0, 8)] * 6]))


FORWARD, BACKWARD = list(range(12)), list(range(11, -1, -1))


def copies(pair: Pair, order: list[int]) -> int:
    before = pair.link.uploads
    pair.check(order)
    return pair.link.uploads - before


def chunks(pair: Pair) -> int:
    return len(pair.model._streaming._streamed["unet"]._composition.chunks)


def test_a_new_order_is_followed_after_three_passes(pair):
    for _ in range(3):
        pair.check(FORWARD)
    count = chunks(pair)
    assert copies(pair, FORWARD) == count > 4
    assert copies(pair, BACKWARD) > count, "fetched out of turn"
    pair.check(BACKWARD)  # traced
    pair.check(BACKWARD)  # what was queued by the old order is replaced
    assert [copies(pair, BACKWARD) for _ in range(3)] == [count] * 3


def test_an_order_that_flips_every_pass_is_traced_less_and_less(pair):
    for _ in range(3):
        pair.check(FORWARD)
    engine = pair.model._streaming._streamed["unet"]
    traced = []
    for number in range(40):
        pair.check(BACKWARD if number % 2 else FORWARD)
        traced.append(engine._strays_borne)
    assert len(set(traced)) <= 7, "once for every doubling"


def test_an_order_that_the_cut_does_not_serve_is_cut_anew(pair):
    zigzag = [number // 2 + 6 * (number % 2) for number in range(12)]
    for _ in range(3):
        pair.check(FORWARD)
    before = pair.model._streaming._streamed["unet"]._composition
    for _ in range(6):
        pair.check(zigzag)
    assert pair.model._streaming._streamed["unet"]._composition is not before
    count = chunks(pair)
    assert [copies(pair, zigzag) for _ in range(2)] == [count] * 2
    pair.check_restored()


def test_a_layer_called_again_and_a_branch_left_out_or_new(pair):
    order = [0, 1, 2, 0, 3, 4, 0, 5]
    for _ in range(4):
        pair.check(order)
    for other in ([0, 1], [5, 4, 3], [], [*order, *order], [7, 8, 0, 9], FORWARD):
        pair.check(other)
        pair.check(order)
    pair.check_restored()
