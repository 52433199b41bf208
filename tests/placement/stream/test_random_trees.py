"""Random module trees in random orders, failing at random: the plain module's bytes come out, all is restored."""

from __future__ import annotations

import copy
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.placement.component import Component, ComponentKind
from sd_webui_spillway.placement.placed_model import PlacedModel
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.placement.spill import SpillOptions
from sd_webui_spillway.placement.stream import StreamOptions
from sd_webui_spillway.units import MIB
from tests.placement.test_switching import HOOKS
from tests.stream_rig import PlannedError, adversary

WIDTH = 8
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


class Layer(nn.Module):
    """A linear layer of any type between float32 activations, with a buffer of its own."""

    def __init__(self, dtype: torch.dtype, inner: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(inner, WIDTH).to(dtype) / 4)
        self.down = nn.Parameter(torch.randn(WIDTH, inner).to(dtype).t().contiguous().t() / 4)
        self.register_buffer("shift", torch.randn(WIDTH))
        self.register_buffer("count", torch.tensor(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(x.to(self.up.dtype) @ self.up.t()) @ self.down.t()
        return x + hidden.to(x.dtype) + self.shift / self.count


class Tree(nn.Module):
    """Groups of layers, called in whatever order a call is told; its own gain is a weight outside every layer."""

    def __init__(self, plan: list[list[tuple[int, int]]]) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH) * 0.9)
        self.groups = nn.ModuleList(
            nn.ModuleList(Layer(DTYPES[dtype], inner) for dtype, inner in group) for group in plan
        )

    def layers(self) -> list[Layer]:
        return [layer for group in self.groups for layer in group]

    def forward(self, x: torch.Tensor, order: list[int], fail_at: int | None = None) -> torch.Tensor:
        layers = self.layers()
        for place, number in enumerate(order):
            if place == fail_at:
                raise PlannedError("planned by the test")
            x = layers[number % len(layers)](x * self.gain)
        return x


@dataclass
class Pair:
    """A tree that streams or spills, and the same one left alone."""

    plain: Tree
    eager: float = 0.0
    seed: int = 0
    cap_bytes: int = MIB
    profile: Profile = Profile.STREAM
    model: PlacedModel = field(init=False)

    def __post_init__(self) -> None:
        self.tree = copy.deepcopy(self.plain)
        self.identity = [(t, t.dtype, t.shape, t.stride()) for t in self.tensors()]
        self.link = adversary(self.eager, self.seed)
        self.card = SimulatedCard(64 * MIB, self.link)
        self.ledger = SharedLedger(self.cap_bytes)
        self.component = Component("unet", ComponentKind.UNET, self.tree, {"forward": ()})
        self.model = PlacedModel(
            [self.component], self.card, self.ledger, StreamOptions(chunk_bytes=4096), SpillOptions(4096, 64)
        )
        self.model.set_weights_budget(1)
        self.model.switch(self.profile)

    def tensors(self) -> list[torch.Tensor]:
        return list(chain(self.tree.parameters(), self.tree.buffers()))

    @torch.no_grad()
    def call(self, order: list[int], fail_at: int | None = None) -> torch.Tensor:
        x = torch.linspace(-1, 1, 2 * WIDTH).view(2, WIDTH)
        with self.model.component_call(self.component, "forward"), self.card.call_scope((x,)):
            return self.tree(x, order, fail_at)

    @torch.no_grad()
    def expected(self, order: list[int]) -> torch.Tensor:
        return self.plain(torch.linspace(-1, 1, 2 * WIDTH).view(2, WIDTH), order)

    def check(self, order: list[int]) -> None:
        assert torch.equal(self.call(order), self.expected(order))

    def check_restored(self) -> None:
        """After an undo: the same objects with the same bytes, nothing pinned, taken or hooked."""
        self.model.undo()
        for tensor, (before, *form) in zip(self.tensors(), self.identity, strict=True):
            assert tensor is before
            assert [tensor.dtype, tensor.shape, tensor.stride()] == form
        for ours, theirs in zip(self.tensors(), chain(self.plain.parameters(), self.plain.buffers()), strict=True):
            assert torch.equal(ours, theirs)
        assert not any(getattr(module, name, None) for module in self.tree.modules() for name in HOOKS)
        assert self.card._weights.sweep() == self.ledger.pinned_bytes == self.link.pinned_bytes == 0
        assert not self.link._queue


layer_plans = st.tuples(st.integers(0, 2), st.sampled_from((1, 8, 24, 40, 200)))
tree_plans = st.lists(st.lists(layer_plans, min_size=1, max_size=4), min_size=1, max_size=4)
orders = st.lists(st.integers(0, 15), max_size=14)
"""Layers by number, modulo how many there are: any order, with repeats and omissions."""
actions = st.one_of(
    st.tuples(st.just("pass"), orders),
    st.tuples(st.just("again"), st.none()),
    st.tuples(st.just("fail"), st.integers(0, 10)),
    st.tuples(st.just("link fails"), st.integers(0, 5)),
    st.tuples(st.just("budget"), st.integers(0, 60_000)),
    st.tuples(st.just("cap"), st.integers(0, 60_000)),
    st.tuples(st.just("edit"), st.integers(0, 15)),
    st.tuples(st.just("rest"), st.none()),
    st.tuples(st.just("switch"), st.sampled_from((Profile.DEDICATED, Profile.SEQUENTIAL))),
)


def act(pair: Pair, action: str, value, order: list[int]) -> list[int]:
    """Do one thing; the order of calls from now on."""
    if action == "pass":
        order = value
    elif action == "fail":
        with pytest.raises(PlannedError) if value < len(order) else nullcontext():
            pair.call(order, value)
    elif action == "link fails":
        pair.link.fail(value)
        with suppress(PlannedError):
            pair.call(order)
        pair.link.fail()
        pair.model.repair()
    elif action == "budget":
        pair.model.set_weights_budget(value)
    elif action == "cap":
        pair.ledger.set_cap(value)
    elif action == "edit":
        pair.model.rest()
        for tree in (pair.tree, pair.plain):
            layers = tree.layers()
            with torch.no_grad():
                layers[value % len(layers)].up.mul_(0.5)
    elif action == "rest":
        pair.model.rest()
    elif action == "switch":
        pair.model.switch(value)
        pair.check(order)
        pair.model.switch(pair.profile)
    pair.check(order)
    assert pair.ledger.pinned_bytes == pair.link.pinned_bytes
    assert pair.ledger.excess_bytes == 0
    return order


@settings(max_examples=60)
@given(
    plan=tree_plans, order=orders, steps=st.lists(actions, max_size=8), eager=st.sampled_from((0.0, 0.3, 1.0)),
    seed=st.integers(0, 99), profile=st.sampled_from((Profile.STREAM, Profile.SPILL)),
)
def test_whatever_happens_the_bytes_are_the_plain_modules(plan, order, steps, eager, seed, profile):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pair = Pair(Tree(plan), eager, seed, profile=profile)
    order = [*range(sum(map(len, plan))), *order]
    for action, value in (("pass", order), ("again", None), *steps, ("again", None)):
        order = act(pair, action, value, order)
    pair.check_restored()


@settings(max_examples=20)
@given(
    profile=st.sampled_from((Profile.STREAM, Profile.SPILL)), plan=tree_plans, order=orders,
    ties=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=3),
)
def test_tied_and_overlapping_weights_stay_so(profile, plan, ties, order):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        tree = Tree(plan)
    layers = tree.layers()
    for first, second in ties:
        one, other = layers[first % len(layers)], layers[second % len(layers)]
        other.shift = one.shift
        if (one.up.shape, one.up.dtype) == (other.up.shape, other.up.dtype):
            other.up = one.up
    layers[0].piece = nn.Parameter(layers[-1].down.data[: WIDTH // 2, 0])
    pair = Pair(tree, profile=profile)
    shared = [(a, b) for a in pair.tensors() for b in pair.tensors() if a.data_ptr() == b.data_ptr()]
    order = [*range(len(layers)), *order]
    for _ in range(3):
        pair.check(order)
    pair.check_restored()
    assert all(a.data_ptr() == b.data_ptr() for a, b in shared)
