"""A thousand random switches and budgets leave nothing behind: on the card, pinned, or in this process."""

from __future__ import annotations

import gc
import random

import psutil
import torch

from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.units import MIB
from tests.placement.stream.test_random_trees import Pair, Tree

SWITCHES = 1000
WARM_UP = 200
"""Switches until the allocators of Python and of the C library have taken what they keep."""
MARGIN_BYTES = 4 * MIB
"""A leak of the tree's weights (about 0.3 MB) by one switch in fifty would exceed this."""
PROFILES = (Profile.DEDICATED, Profile.MEDVRAM, Profile.SEQUENTIAL, Profile.STREAM, Profile.SPILL)


def test_a_thousand_switches_and_budgets_leave_nothing():
    chance = random.Random(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        pair = Pair(Tree([[(0, 400), (2, 800)], [(0, 8), (1, 200), (0, 2000)]]), 0.5)
    order = list(range(5))
    expected = pair.expected(order)
    weights = sum(tensor.nbytes for tensor in pair.tensors())
    process = psutil.Process()
    at_first = 0
    for number in range(SWITCHES + WARM_UP):
        pair.model.switch(chance.choice(PROFILES))
        pair.model.set_weights_budget(chance.randrange(weights + 20_000))
        if chance.random() < 0.2:
            pair.ledger.set_cap(chance.randrange(2 * weights))
        for _ in range(chance.randrange(3)):
            assert torch.equal(pair.call(order), expected)
        if chance.random() < 0.2:
            pair.model.rest()
        assert pair.ledger.pinned_bytes == pair.link.pinned_bytes
        if number + 1 == WARM_UP:
            pair.model.undo()
            gc.collect()
            at_first = process.memory_info().rss
    pair.check_restored()
    gc.collect()
    assert process.memory_info().rss - at_first < MARGIN_BYTES
    assert pair.card.used_bytes() == 0
    assert len(pair.link._slabs) < 20, "the twin itself forgets what is gone"
    assert len(pair.link._mapped) < 200
